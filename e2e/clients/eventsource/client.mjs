// The event streams, as readers of server-sent events see them.
import { EventSource } from 'eventsource';
import { createParser } from 'eventsource-parser';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { APPROVED, BASE, SLOW, TEXT, THINK, auth, call, cutting, done, eq, gapless, ok, say, test, until } from '../check.mjs';

// An EventSource has no headers of its own; this library takes them with fetch.
const withKey = (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...auth } });

const spoken = (events, lane = 'text') => events.filter(e => e.type === 'assistant.delta' && e.data.lane === lane).map(e => e.data.text).join('');
const has = (events, type) => events.some(e => e.type === type);
const seqs = events => events.map(e => e.seq);

// follow opens an EventSource that collects what comes.
const follow = (url, fetch = withKey) => {
  const events = [];
  const source = new EventSource(url, { fetch });
  source.onmessage = m => {
    const event = JSON.parse(m.data);
    if (m.lastEventId !== String(event.seq)) throw new Error(`id ${m.lastEventId} and seq ${event.seq}`);
    events.push(event);
  };
  return { events, source };
};
const ofSession = (id, query = '', base = BASE) => `${base}/v1/sessions/${id}/events${query}`;

await test('EventSource: live events, in order, and their ids are the seqs', async () => {
  const { sessionId, after } = await say('scn:think');
  const { events, source } = follow(ofSession(sessionId));
  await until(() => has(events, 'run.completed'), 'run.completed');
  source.close();
  eq(spoken(events), TEXT, 'text');
  eq(spoken(events, 'reasoning'), THINK, 'reasoning');
  gapless(seqs(events));
  eq([events[0].seq, events[0].type, events[Number(after)].type], [1, 'session.created', 'message.created'], 'beginning');
});

await test('EventSource: comes back from cut connections with Last-Event-ID', async () => {
  const proxy = await cutting(4000);
  const { sessionId } = await say('scn:slow');
  const cursors = [];
  const { events, source } = follow(ofSession(sessionId, '', proxy.url), (url, init) => {
    cursors.push(init.headers['Last-Event-ID'] ?? null);
    return withKey(url, init);
  });
  await until(() => has(events, 'run.completed'), 'run.completed');
  source.close();
  proxy.close();
  eq(spoken(events), SLOW, 'text');
  gapless(seqs(events));
  ok(proxy.seen.connections >= 3 && cursors[0] === null && Number(cursors[1]) > 0, `cursors ${cursors}`);
});

await test('EventSource: 204 ends the reconnections, of a session and of a run', async () => {
  const { sessionId, runId } = await say('scn:text');
  for (const url of [ofSession(sessionId, '?until=idle'), `${BASE}/v1/runs/${runId}/events`]) {
    const statuses = [];
    const { events, source } = follow(url, async (u, init) => {
      const response = await withKey(u, init);
      statuses.push(response.status);
      return response;
    });
    await until(() => source.readyState === EventSource.CLOSED, 'the end');
    eq(statuses, [200, 204], 'statuses');
    eq(spoken(events), TEXT, 'text');
    gapless(seqs(events));
  }
});

await test('fetch and eventsource-parser: a replay is what was live, from any cursor', async () => {
  const { sessionId } = await say('scn:tool');
  const read = async after => {
    const events = [];
    const parser = createParser({ onEvent: m => events.push({ ...JSON.parse(m.data), id: m.id }) });
    const response = await withKey(ofSession(sessionId, `?until=idle&after=${after}`));
    if (response.status === 204) return events;
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) parser.feed(chunk);
    return events;
  };
  const live = await read(0);
  gapless(seqs(live));
  ok(has(live, 'tool.result') && live.at(-1).type === 'run.completed', seqs(live));
  eq(await read(0), live, 'replay');
  for (const i of [0, 4, live.length - 2, live.length - 1]) eq(await read(live[i].seq), live.slice(i + 1), `behind ${live[i].seq}`);
});

await test('two sessions do not mix, and two readers see the same', async () => {
  const [a, b] = await Promise.all([say('scn:slow'), say('scn:slow')]);
  const readers = [a, a, b].map(s => follow(ofSession(s.sessionId)));
  await until(() => readers.every(r => has(r.events, 'run.completed')), 'both runs');
  for (const r of readers) r.source.close();
  eq(readers[0].events, readers[1].events, 'the same session');
  ok(readers[2].events.every(e => e.session_id === b.sessionId), 'another session');
});

await test('an approval, answered while the stream is open', async () => {
  const { sessionId } = await say('scn:approve');
  const { events, source } = follow(ofSession(sessionId));
  await until(() => has(events, 'run.suspended'), 'run.suspended');
  const { approval_id: approvalId } = events.find(e => e.type === 'approval.requested').data;
  const decide = decision => call('ApprovalService/DecideApproval', { approvalId, decision });
  eq((await decide('APPROVAL_DECISION_APPROVE')).status, 200, 'the answer');
  await until(() => has(events, 'run.completed'), 'run.completed');
  eq((await decide('APPROVAL_DECISION_DENY')).status, 409, 'another answer');
  source.close();
  eq(spoken(events), APPROVED, 'text');
  const order = ['approval.requested', 'run.suspended', 'approval.decided', 'tool.started', 'tool.result', 'run.completed'];
  eq(events.map(e => e.type).filter(t => order.includes(t)), order, 'order');
});

await test('a cancel ends the run and not the stream', async () => {
  const { sessionId, runId } = await say('scn:slow');
  const { events, source } = follow(ofSession(sessionId));
  await until(() => has(events, 'assistant.delta'), 'the first words');
  eq((await call('RunService/CancelRun', { runId, reason: 'enough' })).status, 200, 'cancel');
  await until(() => has(events, 'run.cancelled'), 'run.cancelled');
  const kept = spoken(events);
  ok(kept.length > 0 && kept.length < SLOW.length && SLOW.startsWith(kept), `kept ${kept}`);
  eq((await say('scn:text', sessionId)).sessionId, sessionId, 'the session is free');
  await until(() => has(events, 'run.completed'), 'the next run');
  source.close();
  gapless(seqs(events));
});

await test('a broken model shows as run.failed', async () => {
  const { sessionId } = await say('scn:fail');
  const { events, source } = follow(ofSession(sessionId));
  await until(() => has(events, 'run.failed'), 'run.failed');
  source.close();
  eq(spoken(events), 'partial ', 'text');
});

await test('@microsoft/fetch-event-source', async () => {
  globalThis.window ??= globalThis;
  globalThis.document ??= { hidden: false, addEventListener() {}, removeEventListener() {} };
  const { sessionId } = await say('scn:text');
  const events = [];
  await fetchEventSource(ofSession(sessionId, '?until=idle'), {
    headers: auth, openWhenHidden: true,
    onmessage: m => { if (m.data) events.push(JSON.parse(m.data)); },
    onerror: e => { throw e; },
  });
  eq(spoken(events), TEXT, 'text');
  gapless(seqs(events));
});

await test('refusals: EventSource does not come back', async () => {
  const { sessionId, after } = await say('scn:text');
  for (const [url, status] of [
    [ofSession('00000000-0000-7000-8000-000000000000'), 404], [ofSession(sessionId, '?after=abc'), 400],
    [ofSession(sessionId, '?after=1000000'), 400], [ofSession(sessionId, '?until=late'), 400],
  ]) {
    const { source } = follow(url);
    let code;
    source.onerror = e => { code = e.code; };
    await until(() => source.readyState === EventSource.CLOSED, 'the end');
    eq(code, status, url);
  }
  const keyless = await fetch(ofSession(sessionId, `?after=${after}`));
  eq(keyless.status, 401, 'without a key');
  await keyless.body.cancel();
});

done();
