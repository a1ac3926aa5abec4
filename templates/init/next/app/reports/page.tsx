import { requireVisitor } from '../../src/session';

export default async function Reports() {
  const { email, subscription } = await requireVisitor('/reports');
  const isPaid = subscription.entitled && subscription.plan === 'pro';
  return (
    <main>
      <h1>Reports</h1>
      {isPaid ? (
        <p>{`For subscribers such as ${email}.`}</p>
      ) : (
        <p>
          Reports need the plan Professional. <a href="/account/billing">Choose a plan</a>
        </p>
      )}
    </main>
  );
}
