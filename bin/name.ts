import { mustBe } from '../src/config/validation-messages.js';
import { DisplayName, fits } from '../src/http/schemas.js';
import { type Call, type Command, UsageError } from './command.js';

/** The display name. @throws UsageError where it is blank or could be read as something else */
export function nameIn(call: Call, command: Command): { name?: string } {
  const name = call.text('name');
  if (name === undefined) return {};
  if (!fits(name, DisplayName)) throw new UsageError(`--name ${mustBe(DisplayName, name)}.`, command);
  return { name };
}
