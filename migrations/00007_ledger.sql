-- +goose Up
-- The head of the chain moves in the append's own compare-and-set.
ALTER TABLE agentd.sessions
    ADD COLUMN ledger_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN ledger_head bytea,
    ADD CONSTRAINT sessions_ledger_seq_from_0 CHECK (ledger_seq >= 0),
    ADD CONSTRAINT sessions_ledger_has_a_head CHECK (
        (ledger_seq = 0) = (ledger_head IS NULL) AND octet_length(ledger_head) = 32);
COMMENT ON COLUMN agentd.sessions.ledger_seq IS 'The ledger_seq of the session''s last decision, 0 before the first.';
COMMENT ON COLUMN agentd.sessions.ledger_head IS 'The row_hash of that decision; NULL before the first.';

CREATE TABLE agentd.hook_decisions (
    session_id      uuid        NOT NULL,
    ledger_seq      bigint      NOT NULL,
    decision_id     uuid        NOT NULL,
    at              timestamptz NOT NULL,
    tenant_id       text        NOT NULL,
    run_id          uuid,
    turn_no         integer,
    gate            text        NOT NULL,
    subject         text        NOT NULL,
    attempt         integer     NOT NULL,
    phase           text        NOT NULL,
    position        integer     NOT NULL,
    chain_length    integer     NOT NULL,
    hook_id         text        NOT NULL,
    hook_kind       text        NOT NULL,
    hook_version    text,
    hook_digest     text,
    hook_set_digest text,
    rule_id         text,
    action          text        NOT NULL,
    effective       boolean     NOT NULL,
    outcome         text        NOT NULL,
    failure_policy  text        NOT NULL,
    failed_open     boolean     NOT NULL,
    reason_code     text,
    fields_changed  text[]      NOT NULL,
    input_sha256    bytea       NOT NULL,
    output_sha256   bytea       NOT NULL,
    input_bytes     bigint      NOT NULL,
    output_bytes    bigint      NOT NULL,
    event_seq       bigint      NOT NULL,
    epoch           bigint,
    worker_id       uuid,
    queue_us        bigint      NOT NULL,
    latency_us      bigint      NOT NULL,
    deadline_ms     bigint      NOT NULL,
    trace_id        text,
    payload_sha256  bytea,
    prev_hash       bytea       NOT NULL,
    row_hash        bytea       NOT NULL,
    PRIMARY KEY (session_id, ledger_seq),
    CONSTRAINT hook_decisions_decision_id_key UNIQUE (decision_id),
    CONSTRAINT hook_decisions_counts_from_1 CHECK (ledger_seq >= 1 AND event_seq >= 1 AND attempt >= 1 AND turn_no >= 1 AND epoch >= 1),
    CONSTRAINT hook_decisions_turn_has_a_run CHECK (turn_no IS NULL OR run_id IS NOT NULL),
    CONSTRAINT hook_decisions_stands_in_its_chain CHECK (position BETWEEN 1 AND chain_length),
    CONSTRAINT hook_decisions_phase CHECK (phase IN ('mutate', 'validate')),
    CONSTRAINT hook_decisions_hook_kind CHECK (hook_kind IN ('go', 'rule', 'plugin', 'webhook', 'observer', 'host')),
    CONSTRAINT hook_decisions_failure_policy CHECK (failure_policy IN ('open', 'closed')),
    CONSTRAINT hook_decisions_failed_open_is_a_failure CHECK (NOT failed_open OR (outcome <> 'ok' AND failure_policy = 'open')),
    CONSTRAINT hook_decisions_no_empty_text CHECK (
        gate <> '' AND subject <> '' AND hook_id <> '' AND action <> '' AND outcome <> ''
        AND hook_version <> '' AND hook_digest <> '' AND hook_set_digest <> '' AND rule_id <> '' AND reason_code <> '' AND trace_id <> ''),
    CONSTRAINT hook_decisions_digests_are_sha256 CHECK (
        octet_length(input_sha256) = 32 AND octet_length(output_sha256) = 32 AND octet_length(payload_sha256) = 32
        AND octet_length(prev_hash) = 32 AND octet_length(row_hash) = 32),
    CONSTRAINT hook_decisions_first_follows_zeros CHECK (
        ledger_seq > 1 OR prev_hash = '\x0000000000000000000000000000000000000000000000000000000000000000')
);
CREATE INDEX hook_decisions_run_idx ON agentd.hook_decisions (run_id, ledger_seq) WHERE run_id IS NOT NULL;
COMMENT ON TABLE agentd.hook_decisions IS 'The ledger: what each hook answered, a row per hook and position, chained by hashes within a session. Append-only; the owner of the table can switch that off, so it is tamper-evident and not tamper-proof.';
COMMENT ON COLUMN agentd.hook_decisions.session_id IS 'The session whose ledger it is.';
COMMENT ON COLUMN agentd.hook_decisions.ledger_seq IS 'Counts from 1 within the session; no holes.';
COMMENT ON COLUMN agentd.hook_decisions.decision_id IS 'UUIDv5 of the position, the phase, the place in the chain and the hook: the same whenever the hook is asked there.';
COMMENT ON COLUMN agentd.hook_decisions.at IS 'When the answer was there, by the asker''s clock, in microseconds.';
COMMENT ON COLUMN agentd.hook_decisions.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.hook_decisions.run_id IS 'The run; NULL where there was none yet.';
COMMENT ON COLUMN agentd.hook_decisions.turn_no IS 'The turn within the run; NULL outside a turn.';
COMMENT ON COLUMN agentd.hook_decisions.gate IS 'Where the loop asked before it acted, such as BeforeToolCall.';
COMMENT ON COLUMN agentd.hook_decisions.subject IS 'What was asked about: the id of the input, of the run or of the tool call, or the number of the model call.';
COMMENT ON COLUMN agentd.hook_decisions.attempt IS 'Counts from 1: the model call''s attempt, the execution''s attempt, or the revision of the arguments.';
COMMENT ON COLUMN agentd.hook_decisions.phase IS 'mutate (may change the value), validate (may only judge it).';
COMMENT ON COLUMN agentd.hook_decisions.position IS 'The hook''s place in the chain of the gate, from 1.';
COMMENT ON COLUMN agentd.hook_decisions.chain_length IS 'How many hooks the chain has; those after a refusal were not asked and have no row.';
COMMENT ON COLUMN agentd.hook_decisions.hook_id IS 'The hook.';
COMMENT ON COLUMN agentd.hook_decisions.hook_kind IS 'go, rule, plugin, webhook, observer, host.';
COMMENT ON COLUMN agentd.hook_decisions.hook_version IS 'Its version; NULL if it has none.';
COMMENT ON COLUMN agentd.hook_decisions.hook_digest IS 'Digest (hex) of its code; NULL where nobody computes it.';
COMMENT ON COLUMN agentd.hook_decisions.hook_set_digest IS 'Digest (hex) of all hooks of the process that asked, see hook_sets.';
COMMENT ON COLUMN agentd.hook_decisions.rule_id IS 'The rule that decided, where the hook has several.';
COMMENT ON COLUMN agentd.hook_decisions.action IS 'What the gate took from the hook: continue, transform, ask, handled, terminate, block, withhold.';
COMMENT ON COLUMN agentd.hook_decisions.effective IS 'False if it led to nothing: a stronger answer overruled it, or something came between.';
COMMENT ON COLUMN agentd.hook_decisions.outcome IS 'ok, or how the hook failed: error, timeout, panic, crash, unavailable, malformed, oversize, illegal_action, unappliable.';
COMMENT ON COLUMN agentd.hook_decisions.failure_policy IS 'What a failure comes to: closed (refuse), open (go on).';
COMMENT ON COLUMN agentd.hook_decisions.failed_open IS 'The hook failed and the loop went on.';
COMMENT ON COLUMN agentd.hook_decisions.reason_code IS 'The reason for programs; NULL if none was given.';
COMMENT ON COLUMN agentd.hook_decisions.fields_changed IS 'The fields that the hook changed.';
COMMENT ON COLUMN agentd.hook_decisions.input_sha256 IS 'Digest of what the hook was asked about, as JSON.';
COMMENT ON COLUMN agentd.hook_decisions.output_sha256 IS 'Digest of what it left, as JSON.';
COMMENT ON COLUMN agentd.hook_decisions.input_bytes IS 'Length of that input.';
COMMENT ON COLUMN agentd.hook_decisions.output_bytes IS 'Length of that output.';
COMMENT ON COLUMN agentd.hook_decisions.event_seq IS 'Seq of the last event that was committed with the decision.';
COMMENT ON COLUMN agentd.hook_decisions.epoch IS 'The lease under which the hook was asked; NULL if there was none.';
COMMENT ON COLUMN agentd.hook_decisions.worker_id IS 'The worker that asked; NULL if it was none.';
COMMENT ON COLUMN agentd.hook_decisions.queue_us IS 'Microseconds until the hook was entered.';
COMMENT ON COLUMN agentd.hook_decisions.latency_us IS 'Microseconds that the whole call took.';
COMMENT ON COLUMN agentd.hook_decisions.deadline_ms IS 'Milliseconds that it might take.';
COMMENT ON COLUMN agentd.hook_decisions.trace_id IS 'The trace; NULL outside one.';
COMMENT ON COLUMN agentd.hook_decisions.payload_sha256 IS 'Hash of the row in hook_payloads, which may be erased; NULL if there never was one.';
COMMENT ON COLUMN agentd.hook_decisions.prev_hash IS 'The row_hash of the row before, zeros for the first.';
COMMENT ON COLUMN agentd.hook_decisions.row_hash IS 'SHA-256 over all other columns.';

-- +goose StatementBegin
CREATE FUNCTION agentd.ledger_refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'agentd.% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.ledger_refuse_change() IS 'Lets nothing leave the ledger.';
CREATE TRIGGER hook_decisions_append_only BEFORE UPDATE OR DELETE ON agentd.hook_decisions
    FOR EACH ROW EXECUTE FUNCTION agentd.ledger_refuse_change();
CREATE TRIGGER hook_decisions_no_truncate BEFORE TRUNCATE ON agentd.hook_decisions
    FOR EACH STATEMENT EXECUTE FUNCTION agentd.ledger_refuse_change();

CREATE TABLE agentd.hook_payloads (
    decision_id uuid  NOT NULL PRIMARY KEY REFERENCES agentd.hook_decisions (decision_id),
    tenant_id   text  NOT NULL,
    salt        bytea NOT NULL,
    reason      text,
    patch       text,
    annotations text,
    CONSTRAINT hook_payloads_salt_is_32_bytes CHECK (octet_length(salt) = 32),
    CONSTRAINT hook_payloads_no_empty_text CHECK (reason <> '' AND patch <> '' AND annotations <> '')
);
COMMENT ON TABLE agentd.hook_payloads IS 'What of decisions can be erased: deleting a row leaves the ledger valid.';
COMMENT ON COLUMN agentd.hook_payloads.decision_id IS 'The decision.';
COMMENT ON COLUMN agentd.hook_payloads.tenant_id IS 'The owner of the session.';
COMMENT ON COLUMN agentd.hook_payloads.salt IS 'Random: without it, who guesses an erased text cannot check the guess against the ledger.';
COMMENT ON COLUMN agentd.hook_payloads.reason IS 'The hook''s words, or what went wrong with it.';
COMMENT ON COLUMN agentd.hook_payloads.patch IS 'JSON Patch from what the hook was asked about to what it left; NULL if it changed nothing.';
COMMENT ON COLUMN agentd.hook_payloads.annotations IS 'A JSON object of texts that the hook added.';

-- Hooks belong to processes, not to tenants.
CREATE TABLE agentd.hook_sets (
    digest        text        NOT NULL PRIMARY KEY,
    hooks         json        NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT agentd.clock(),
    CONSTRAINT hook_sets_digest_is_sha256 CHECK (digest ~ '^[0-9a-f]{64}$'),
    CONSTRAINT hook_sets_hooks_is_a_list CHECK (json_typeof(hooks) = 'array')
);
CREATE TRIGGER hook_sets_append_only BEFORE UPDATE OR DELETE ON agentd.hook_sets
    FOR EACH ROW EXECUTE FUNCTION agentd.ledger_refuse_change();
CREATE TRIGGER hook_sets_no_truncate BEFORE TRUNCATE ON agentd.hook_sets
    FOR EACH STATEMENT EXECUTE FUNCTION agentd.ledger_refuse_change();
COMMENT ON TABLE agentd.hook_sets IS 'Every combination of hooks that a process ever worked with.';
COMMENT ON COLUMN agentd.hook_sets.digest IS 'SHA-256 (hex) of hooks.';
COMMENT ON COLUMN agentd.hook_sets.hooks IS 'The hooks in the order of gates and of asking: gate, id, version, kind, phase, digest, config, limits.';
COMMENT ON COLUMN agentd.hook_sets.first_seen_at IS 'When a process first had it.';
