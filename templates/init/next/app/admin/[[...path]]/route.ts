import { backend } from '../../../src/session';

const handle = (request: Request) => backend(request);

export { handle as DELETE, handle as GET, handle as OPTIONS, handle as PATCH, handle as POST };
