import { requireVisitor } from '../../src/session';

export default async function Dashboard() {
  const { email, subscription } = await requireVisitor('/dashboard');
  return (
    <main>
      <h1>Dashboard</h1>
      <p>{`Signed in as ${email}. Plan: ${subscription.plan}.`}</p>
      <p>
        <a href="/reports">Reports</a> <a href="/account">Account</a> <a href="/account/sign-out">Sign out</a>
      </p>
    </main>
  );
}
