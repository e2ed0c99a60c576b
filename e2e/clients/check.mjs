// What the client scripts share: a runner of checks, the words of the scripted
// model, and a proxy that cuts connections. A script exits with 0 if all passed.
import { createServer, connect } from 'node:net';

export const BASE = process.env.BASE_URL ?? 'http://127.0.0.1:8080';
export const auth = process.env.API_KEY ? { authorization: `Bearer ${process.env.API_KEY}` } : {};

// What the model of script.json says; a message names its scenario as scn:NAME.
export const TEXT = 'Hello from the agent. Streaming works: ünïcödé ✓ 🚀.';
export const THINK = 'Let me think about that.';
export const SLOW = Array.from({ length: 40 }, (_, i) => `w${i} `).join('');
export const WEATHER = 'It is 21 C in Paris.';
export const APPROVED = 'Done: /tmp/x deleted.';

let passed = 0, failed = 0;

export const eq = (got, want, what) => {
  const g = JSON.stringify(got), w = JSON.stringify(want);
  if (g !== w) throw new Error(`${what}: got ${g}, want ${w}`);
};

export const ok = (value, what) => {
  if (!value) throw new Error(what);
};

export async function test(name, run, { timeout = 60000 } = {}) {
  if (process.env.ONLY && !name.includes(process.env.ONLY)) return;
  let timer;
  try {
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`not done after ${timeout} ms`)), timeout); });
    await Promise.race([run(), late]);
    passed++;
    console.log(`ok   ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}: ${e?.stack?.split('\n').slice(0, 4).join('\n       ') ?? e}`);
  } finally {
    clearTimeout(timer);
  }
}

export function done() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed || !passed ? 1 : 0);
}

export const until = async (reached, what, ms = 30000) => {
  for (const end = Date.now() + ms; !reached();) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise(resolve => setTimeout(resolve, 10));
  }
};

// call is a call as a client without a library makes it.
export const call = async (procedure, body = {}) => {
  const response = await fetch(`${BASE}/agentd.v1.${procedure}`, {
    method: 'POST', headers: { 'content-type': 'application/json', ...auth }, body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
};

// say starts a run in a session of its own, or in one that is there.
export const say = async (text, session) => {
  const sessionId = session ?? (await call('SessionService/CreateSession')).body.sessionId;
  const started = await call('RunService/StartRun', { sessionId, text });
  eq(started.status, 200, 'start of a run');
  return { sessionId, runId: started.body.runId, after: started.body.after };
};

// gapless checks that events have rising seqs without a hole.
export const gapless = seqs => {
  for (let i = 1; i < seqs.length; i++) {
    if (BigInt(seqs[i]) !== BigInt(seqs[i - 1]) + 1n) throw new Error(`seq ${seqs[i - 1]}, then ${seqs[i]}`);
  }
};

// cutting stands before the server and ends every connection after so many bytes
// of its answer. It returns its address, and counts.
export const cutting = bytes => new Promise(resolve => {
  const to = new URL(BASE);
  const seen = { connections: 0 };
  const server = createServer(client => {
    seen.connections++;
    const upstream = connect(Number(to.port), to.hostname);
    let left = bytes;
    client.pipe(upstream);
    upstream.on('data', chunk => {
      client.write(chunk.subarray(0, left));
      if ((left -= chunk.length) <= 0) end();
    });
    const end = () => { client.destroy(); upstream.destroy(); };
    for (const s of [client, upstream]) s.on('error', end).on('close', end);
  });
  server.listen(0, '127.0.0.1', () => resolve({ url: `http://127.0.0.1:${server.address().port}`, seen, close: () => server.close() }));
});
