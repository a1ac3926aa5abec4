import t from 'tap';
import { changeDetail } from '../../../src/core/ops/audit.js';
import { writeDetail } from '../../../src/shared/console-kit/audit.js';

/** How the pages write what a record says about a change. */

t.test('a change is written with the value before and after', async (t) => {
  t.equal(writeDetail(changeDetail({ plan: 'free' }, { plan: 'pro' })), 'plan: free → pro');
  t.equal(writeDetail(changeDetail({ roles: [] }, { roles: ['a', 'b'] })), 'roles: none → a, b');
  t.equal(writeDetail(changeDetail({ name: 'Ada' }, {})), 'name: Ada → none');
  t.equal(
    writeDetail(`mail_1 ${changeDetail({ status: 'failed' }, { status: 'queued' })}`),
    'mail_1 status: failed → queued',
  );
});

t.test('what is no change is written as it is', async (t) => {
  t.equal(writeDetail('{"organization":"org_1","role":"owner"}'), 'organization: org_1; role: owner');
  t.equal(
    writeDetail('{the customer asked by phone}'),
    '{the customer asked by phone}',
    'the words of an operator',
  );
  t.equal(writeDetail('cancelled'), 'cancelled');
  t.equal(writeDetail(null), null);
});
