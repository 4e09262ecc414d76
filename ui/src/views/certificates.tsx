// The certificates, those that expire first at the top.

import { usePolled } from '../model/polling';
import type { Domain } from '../model/types';
import { Problem } from '../parts/notice';
import { Table } from '../parts/table';
import { Text } from '../parts/text';

interface Certificate {
  key?: string;
  chain?: {
    subject?: { common_name?: string; alt_names?: string[] };
    issuer?: { common_name?: string; organization?: string };
    validity?: { since?: string; until?: string };
  }[];
}

const DAY = 86_400_000;

export function CertificatesView({ domains }: { domains: Record<string, Domain> | undefined }) {
  const { value, error } = usePolled<Record<string, Certificate>>('certificates', 60_000);
  const until = (one: Certificate) => Date.parse(one.chain?.[0]?.validity?.until ?? '');
  const rows = Object.entries(value ?? {}).sort(([, one], [, other]) => (until(one) || 0) - (until(other) || 0));
  return (
    <>
      <h1>Certificates</h1>
      {error && <Problem>{error.message}</Problem>}
      {value && (
        <Table
          label="Certificates"
          empty="There is no certificate. howdah certificate put NAME FILE adds one."
          rows={rows}
          keyOf={([name]) => name}
          columns={[
            { title: 'name', cell: ([name]) => <Text value={name} /> },
            {
              title: 'valid for',
              cell: ([, one]) => {
                const subject = one.chain?.[0]?.subject;
                const names = subject?.alt_names?.length ? subject.alt_names : [subject?.common_name ?? ''];
                return <Text value={names.join(', ')} />;
              },
            },
            { title: 'issuer', cell: ([, one]) => <Text value={one.chain?.[0]?.issuer?.common_name ?? one.chain?.[0]?.issuer?.organization} /> },
            { title: 'key', cell: ([, one]) => <Text value={one.key} /> },
            { title: 'until', cell: ([, one]) => <Expiry until={until(one)} text={one.chain?.[0]?.validity?.until} /> },
          ]}
        />
      )}
      <Domains domains={Object.entries(domains ?? {})} />
    </>
  );
}

/** The domains whose certificates howdah obtains itself. */
function Domains({ domains }: { domains: [string, Domain][] }) {
  if (domains.length === 0) return null;
  return (
    <section>
      <h2>Obtained by howdah</h2>
      <Table
        label="Domains"
        empty=""
        rows={domains}
        keyOf={([name]) => name}
        columns={[
          { title: 'domain', cell: ([name]) => <Text value={name} /> },
          { title: 'certificate', cell: ([, one]) => <span class={`badge ${one.state === 'valid' ? 'good' : 'waiting'}`}>{one.state}</span> },
          { title: 'expires', cell: ([, one]) => <Text value={one.expires} /> },
          { title: 'renewal', cell: ([, one]) => <Text value={one.renewal} /> },
          { title: 'last error', cell: ([, one]) => <Text value={one.last_error} most={300} /> },
        ]}
      />
    </section>
  );
}

function Expiry({ until, text }: { until: number; text?: string | undefined }) {
  if (Number.isNaN(until)) return <Text value={text} />;
  const days = Math.floor((until - Date.now()) / DAY);
  const kind = days < 0 ? 'bad' : days < 21 ? 'waiting' : 'good';
  return (
    <span>
      <Text value={text} /> <span class={`badge ${kind}`}>{days < 0 ? 'expired' : `${days} days`}</span>
    </span>
  );
}
