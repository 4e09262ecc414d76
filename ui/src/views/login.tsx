// A browser without a session.

import { useState } from 'preact/hooks';
import { open } from '../model/session';
import { Problem } from '../parts/notice';

export function LoginView({ reason, onOpen }: { reason: string; onOpen: () => void }) {
  const [token, setToken] = useState('');
  const [problem, setProblem] = useState(reason);
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await open(token.replace(/^.*#/, ''));
      onOpen();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <main class="login">
      <h1>howdah</h1>
      <p>Open the URL that <code>howdah dashboard</code> has printed, or write its token here.</p>
      {problem && <Problem>{problem}</Problem>}
      <form onSubmit={(event) => void submit(event)}>
        <label class="field">
          <span>Token or URL</span>
          <input type="password" autocomplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button class="primary">Open</button>
      </form>
    </main>
  );
}
