// The calls, over every protocol that the Connect library speaks. Its messages
// are made from the descriptors in PROTOS, those that the server was built with.
import { readFileSync } from 'node:fs';
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import { APPROVED, BASE as baseUrl, SLOW, TEXT, auth, done, eq, gapless, ok, test } from '../check.mjs';

const protos = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(process.env.PROTOS)));
const service = name => protos.getService(`agentd.v1.${name}`);

const interceptors = [next => request => {
  for (const [name, value] of Object.entries(auth)) request.header.set(name, value);
  return next(request);
}];
const transports = {
  'connect, JSON, HTTP/1.1': createConnectTransport({ baseUrl, httpVersion: '1.1', useBinaryFormat: false, useHttpGet: true, interceptors }),
  'connect, binary, HTTP/1.1': createConnectTransport({ baseUrl, httpVersion: '1.1', useBinaryFormat: true, interceptors }),
  'connect, binary, HTTP/2': createConnectTransport({ baseUrl, httpVersion: '2', useBinaryFormat: true, interceptors }),
  'gRPC, HTTP/2': createGrpcTransport({ baseUrl, interceptors }),
  'gRPC-Web, HTTP/1.1': createGrpcWebTransport({ baseUrl, httpVersion: '1.1', interceptors }),
};

const data = event => JSON.parse(event.dataJson);
const spoken = events => events.filter(e => e.type === 'assistant.delta').map(e => data(e).text).join('');
const seqs = events => events.map(e => e.seq);
const refused = async promise => {
  const e = await Promise.resolve(promise).catch(e => e);
  ok(e instanceof ConnectError, `${e}, want an error`);
  return e;
};

for (const [name, transport] of Object.entries(transports)) {
  const sessions = createClient(service('SessionService'), transport);
  const runs = createClient(service('RunService'), transport);
  const approvals = createClient(service('ApprovalService'), transport);
  const ledger = createClient(service('LedgerService'), transport);

  const say = async (text, sessionId) => {
    sessionId ??= (await sessions.createSession({})).sessionId;
    return { sessionId, ...(await runs.startRun({ sessionId, text })) };
  };
  // watch collects events until the session is idle, or until stop says so.
  const watch = async (request, stop) => {
    const events = [];
    for await (const { event } of sessions.watchEvents({ untilIdle: true, ...request })) {
      if (event) events.push(event); // a heartbeat has none
      if (event && stop?.(events)) break;
    }
    return events;
  };

  await test(`${name}: a run, watched to its end`, async () => {
    const { sessionId } = await say('scn:text');
    const events = await watch({ sessionId });
    eq(spoken(events), TEXT, 'text');
    gapless(seqs(events));
    eq(events.at(-1).type, 'run.completed', 'end');
  });

  await test(`${name}: leave in the middle, and go on from the last seq`, async () => {
    const { sessionId } = await say('scn:slow');
    const first = await watch({ sessionId }, events => events.length === 10);
    const rest = await watch({ sessionId, after: first.at(-1).seq });
    eq(spoken([...first, ...rest]), SLOW, 'text');
    gapless(seqs([...first, ...rest]));
  });

  await test(`${name}: lists say what the stream said`, async () => {
    const { sessionId, runId } = await say('scn:tool');
    const live = await watch({ sessionId });
    const listed = [];
    for (let after = 0n, more = true; more;) {
      const page = await sessions.listEvents({ sessionId, after, pageSize: 5 });
      listed.push(...page.events);
      [after, more] = [page.events.at(-1)?.seq ?? after, page.more];
    }
    eq(listed.map(e => [String(e.seq), e.type, e.dataJson]), live.map(e => [String(e.seq), e.type, e.dataJson]), 'events');
    const { messages } = await sessions.listMessages({ sessionId });
    eq(messages.map(m => m.parts[0].kind.case), ['text', 'toolCall', 'toolResult', 'text'], 'messages');
    const { run } = await runs.getRun({ runId });
    eq([run.turns, run.sessionId, (await runs.listRuns({ sessionId })).runs.length], [2, sessionId, 1], 'run');
    eq((await ledger.listDecisions({ of: { case: 'sessionId', value: sessionId } })).nextPageToken, '', 'decisions');
  });

  await test(`${name}: sessions have names, titles and metadata`, async () => {
    const externalId = `e2e ${name} ${Math.random()}`;
    const { sessionId, created } = await sessions.createSession({ externalId, title: 'Trip to Oslo', user: externalId, metadata: { k: 'v' } });
    ok(created && !(await sessions.createSession({ externalId })).created, 'created once');
    const { session } = await sessions.updateSession({ sessionId, title: 'Trip to Rome', metadata: { l: 'm' }, removeMetadata: ['k'] });
    eq([session.title, session.metadata], ['Trip to Rome', { l: 'm' }], 'session');
    eq((await sessions.listSessions({ user: externalId, query: 'rome', metadata: { l: 'm' } })).sessions.map(s => s.id), [sessionId], 'found');
    await sessions.deleteSession({ sessionId });
    eq((await refused(sessions.getSession({ name: { case: 'externalId', value: externalId } }))).code, Code.NotFound, 'deleted');
  });

  await test(`${name}: an approval`, async () => {
    const { sessionId, runId } = await say('scn:approve');
    const first = await watch({ sessionId });
    eq(first.at(-1).type, 'run.suspended', 'it waits');
    const { approvals: [open] } = await approvals.listApprovals({ runId, pendingOnly: true });
    eq([open.toolName, open.arguments], ['delete_file', '{ "path": "/tmp/x" }'], 'the call');
    await approvals.decideApproval({ approvalId: open.id, decision: 1, argumentsSha256: open.argumentsSha256 });
    const rest = await watch({ sessionId, after: first.at(-1).seq });
    eq(spoken(rest), APPROVED, 'text');
    eq((await refused(approvals.decideApproval({ approvalId: open.id, decision: 2 }))).metadata.get('agentd-reason'), 'already_decided', 'another answer');
  });

  await test(`${name}: a cancel, and the same message answered again`, async () => {
    const { sessionId, runId, messageId } = await say('scn:slow');
    await watch({ sessionId }, events => events.at(-1).type === 'assistant.delta');
    await runs.cancelRun({ runId, reason: 'enough' });
    eq((await watch({ sessionId })).at(-1).type, 'run.cancelled', 'end');
    const again = await runs.startRun({ sessionId, replaceFrom: messageId, text: 'scn:text' });
    eq(spoken(await watch({ sessionId, after: again.after })), TEXT, 'text');
    eq((await refused(runs.retryRun({ runId }))).metadata.get('agentd-reason'), 'not_retryable', 'a retry of what was cancelled');
  });

  await test(`${name}: a repeated request is one run`, async () => {
    const { sessionId } = await sessions.createSession({});
    const request = { sessionId, text: 'scn:text', idempotencyKey: 'k' };
    const first = await runs.startRun(request), second = await runs.startRun(request);
    eq([second.runId, second.alreadyStarted], [first.runId, true], 'answers');
    eq((await refused(runs.startRun({ ...request, text: 'scn:tool' }))).code, Code.AlreadyExists, 'another text');
  });

  await test(`${name}: refusals have a code, a reason and a detail`, async () => {
    const nobodys = '00000000-0000-7000-8000-000000000000';
    eq((await refused(runs.startRun({ sessionId: nobodys, text: 'x' }))).code, Code.NotFound, 'a call');
    eq((await refused(watch({ sessionId: nobodys }))).code, Code.NotFound, 'a stream');
    const { sessionId, runId } = await say('scn:slow');
    const empty = await refused(runs.startRun({ sessionId, text: '' }));
    eq([empty.code, empty.metadata.get('agentd-reason')], [Code.InvalidArgument, 'invalid_argument'], 'an empty text');
    const busy = await refused(runs.startRun({ sessionId, text: 'scn:text' }));
    eq(busy.code, Code.Aborted, 'a busy session');
    const [detail] = busy.findDetails(protos.getMessage('agentd.v1.ErrorReason'));
    eq([detail.reason, detail.activeRunId], ['session_busy', runId], 'detail');
    await runs.cancelRun({ runId });
  });

  await test(`${name}: a deadline ends a stream that follows`, async () => {
    const { sessionId } = await say('scn:text');
    const follow = async () => {
      for await (const _ of sessions.watchEvents({ sessionId }, { timeoutMs: 500 }));
    };
    eq((await refused(follow())).code, Code.DeadlineExceeded, 'code');
  });
}

done();
