// The page: its frame, its views, and what it shows when something is gone.

import './app.css';
import { render } from 'preact';
import { useEffect, useErrorBoundary, useState } from 'preact/hooks';
import { moment, visible } from './model/format';
import { usePolled } from './model/polling';
import { close, openFromUrl, Refused } from './model/session';
import { useTheme } from './model/theme';
import type { About, Now, Status } from './model/types';
import { Problem } from './parts/notice';
import { ApplicationView } from './views/application';
import { CertificatesView } from './views/certificates';
import { ConfigurationView } from './views/configuration';
import { HistoryView } from './views/history';
import { LeaksView } from './views/leaks';
import { LoginView } from './views/login';
import { NowView } from './views/now';
import { ProfileView } from './views/profile';
import { SlowView } from './views/slow';

const PAGES: [name: string, title: string][] = [
  ['now', 'Now'],
  ['history', 'History'],
  ['slow', 'Slow requests'],
  ['profile', 'Flame graph'],
  ['leaks', 'Leaks'],
  ['configuration', 'Configuration'],
  ['certificates', 'Certificates'],
];

function App() {
  const [page, argument] = useHash();
  const [theme, nextTheme] = useTheme();
  const [problem, dismiss] = useErrorBoundary();
  useEffect(() => {
    dismiss();
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [page]);
  const now = usePolled<Now>('now', 1000);
  const about = usePolled<About>('about', 0);
  const isRefused = now.error instanceof Refused && [401, 403].includes(now.error.status);
  if (isRefused) {
    const reload = () => { now.reload(); about.reload(); };
    return <LoginView reason={wasLoggedOut ? '' : (now.error?.message ?? '')} onOpen={reload} />;
  }
  const names = now.value?.reachable ? namesOf(now.value.status) : null;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>
        To the content
      </a>
      <header>
        <a class="brand" href="#/now">howdah</a>
        <nav aria-label="Pages">
          {PAGES.map(([name, title]) => (
            <a key={name} href={`#/${name}`} aria-current={page === name ? 'page' : undefined}>{title}</a>
          ))}
        </nav>
        <div class="tools">
          {about.value?.read_only && <span class="badge">read-only</span>}
          <button type="button" onClick={nextTheme} title="Colours: as the system, light or dark">{theme}</button>
          <button type="button" onClick={() => void logOut(now.reload)}>Log out</button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {now.error && <Problem>{now.error.message}</Problem>}
        {now.value && !now.value.reachable && (
          <Problem>
            <b>howdah does not answer</b> since {moment(now.value.since)}: {visible(now.value.reason)} The page tries again each second.
          </Problem>
        )}
        {!now.value && !now.error && <p class="empty">Reading…</p>}
        {problem ? (
          <Problem>This page failed, which is a bug: please report it. {visible(String(problem))}</Problem>
        ) : (
          <View page={page} argument={argument} now={now.value} former={now.former} names={names} about={about.value} />
        )}
      </main>
      <footer>
        {about.value && (
          <p>
            howdah {about.value.version} · control {visible(about.value.control)} · <a href="/licenses.txt">licences</a>
          </p>
        )}
      </footer>
    </>
  );
}

interface ViewProps {
  page: string;
  argument: string | undefined;
  now: Now | undefined;
  former: Now | undefined;
  /** The applications; `null` if they are not known. */
  names: string[] | null;
  about: About | undefined;
}

function View({ page, argument, now, former, names, about }: ViewProps) {
  const isReadOnly = about?.read_only ?? true;
  const known = useKept(names);
  switch (page) {
    case 'configuration':
      return <ConfigurationView isReadOnly={isReadOnly} />;
    case 'certificates':
      return <CertificatesView domains={now?.reachable ? now.status.certificates : undefined} />;
    case 'application':
      return <ApplicationView key={argument} name={argument ?? ''} now={now} isReadOnly={isReadOnly} />;
    case 'history':
      return known && <HistoryView key={argument} names={known} chosen={argument} about={about} />;
    case 'profile':
      return known && <ProfileView key={argument} names={known} chosen={argument} />;
    case 'leaks':
      return known && <LeaksView key={argument} names={known} chosen={argument} />;
    case 'slow':
      return known && <SlowView key={argument} names={known} chosen={argument} />;
    default:
      return now ? <NowView now={now} former={former} isReadOnly={isReadOnly} /> : null;
  }
}

/** The applications: those that do not start come last. */
function namesOf(status: Status): string[] {
  const all = Object.entries(status.applications);
  return [...all.filter(([, one]) => !one.failure), ...all.filter(([, one]) => one.failure)].map(([name]) => name);
}

/** The last value that was known: a view that is open stays open when howdah is gone. */
function useKept<T>(value: T | null): T | null {
  const [kept, setKept] = useState<T | null>(value);
  useEffect(() => {
    if (value !== null) setKept(value);
  }, [JSON.stringify(value)]);
  return value ?? kept;
}

/** The page's name and its argument, as in `#/application/shop`. */
function useHash(): [string, string | undefined] {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listener = () => setHash(location.hash);
    addEventListener('hashchange', listener);
    return () => removeEventListener('hashchange', listener);
  }, []);
  const [name, argument] = hash.replace(/^#\/?/, '').split('/');
  return [name || 'now', argument === undefined ? undefined : decoded(argument)];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

let wasLoggedOut = false;

async function logOut(then: () => void) {
  wasLoggedOut = true;
  await close().catch(() => {});
  then();
}

void openFromUrl()
  .catch(() => {})
  .then(() => render(<App />, document.body));
