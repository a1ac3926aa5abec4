export default function Home() {
  return (
    <main>
      <h1>my-app</h1>
      <p>
        <a href="/dashboard">Dashboard</a> <a href="/account/sign-up">Create an account</a>
      </p>
    </main>
  );
}
