-- +goose Up
-- What is hashed, as package hooks hashes it (Row.Hash). A column is the byte 0
-- if it is NULL; otherwise the byte 1, its length as 4 bytes, its content.
-- These functions are inlined into the query that calls them: a call each would
-- take ten times as long as the hash.
CREATE FUNCTION agentd.ledger_text(t text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN t IS NULL THEN '\x00'::bytea
        ELSE '\x01'::bytea || int4send(octet_length(convert_to(t, 'UTF8'))) || convert_to(t, 'UTF8') END;
CREATE FUNCTION agentd.ledger_integer(n bigint) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN n IS NULL THEN '\x00'::bytea ELSE '\x0100000008'::bytea || int8send(n) END;
CREATE FUNCTION agentd.ledger_boolean(b boolean) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN b IS NULL THEN '\x00'::bytea WHEN b THEN '\x010000000101'::bytea ELSE '\x010000000100'::bytea END;
CREATE FUNCTION agentd.ledger_digest(b bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN b IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || int4send(octet_length(b)) || b END;
-- NULL beyond what 8 bytes hold.
CREATE FUNCTION agentd.ledger_time(at timestamptz) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN isfinite(at) AND at < timestamptz '294247-01-10 04:00:54.775807+00' THEN (extract(epoch FROM at) * 1000000)::bigint END;
-- NULL for what is no list of texts.
-- +goose StatementBegin
CREATE FUNCTION agentd.ledger_list(texts text[]) RETURNS bytea
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
DECLARE
    content bytea := '';
    t text;
BEGIN
    IF texts IS NULL OR array_ndims(texts) > 1 THEN
        RETURN NULL;
    END IF;
    FOREACH t IN ARRAY texts LOOP
        content := content || int4send(octet_length(convert_to(t, 'UTF8'))) || convert_to(t, 'UTF8');
    END LOOP;
    RETURN '\x01'::bytea || int4send(octet_length(content)) || content;
END
$$;
-- +goose StatementEnd
CREATE FUNCTION agentd.ledger_row(d agentd.hook_decisions) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN 'agentd.ledger.v1'::bytea || d.prev_hash
        || agentd.ledger_text(d.session_id::text)
        || agentd.ledger_integer(d.ledger_seq)
        || agentd.ledger_text(d.decision_id::text)
        || agentd.ledger_integer(agentd.ledger_time(d.at))
        || agentd.ledger_text(d.tenant_id)
        || agentd.ledger_text(d.run_id::text)
        || agentd.ledger_integer(d.turn_no)
        || agentd.ledger_text(d.gate)
        || agentd.ledger_text(d.subject)
        || agentd.ledger_integer(d.attempt)
        || agentd.ledger_text(d.phase)
        || agentd.ledger_integer(d.position)
        || agentd.ledger_integer(d.chain_length)
        || agentd.ledger_text(d.hook_id)
        || agentd.ledger_text(d.hook_kind)
        || agentd.ledger_text(d.hook_version)
        || agentd.ledger_text(d.hook_digest)
        || agentd.ledger_text(d.hook_set_digest)
        || agentd.ledger_text(d.rule_id)
        || agentd.ledger_text(d.action)
        || agentd.ledger_boolean(d.effective)
        || agentd.ledger_text(d.outcome)
        || agentd.ledger_text(d.failure_policy)
        || agentd.ledger_boolean(d.failed_open)
        || agentd.ledger_text(d.reason_code)
        || CASE WHEN d.fields_changed = '{}' THEN '\x0100000000'::bytea ELSE agentd.ledger_list(d.fields_changed) END
        || agentd.ledger_digest(d.input_sha256)
        || agentd.ledger_digest(d.output_sha256)
        || agentd.ledger_integer(d.input_bytes)
        || agentd.ledger_integer(d.output_bytes)
        || agentd.ledger_integer(d.event_seq)
        || agentd.ledger_integer(d.epoch)
        || agentd.ledger_text(d.worker_id::text)
        || agentd.ledger_integer(d.queue_us)
        || agentd.ledger_integer(d.latency_us)
        || agentd.ledger_integer(d.deadline_ms)
        || agentd.ledger_text(d.trace_id)
        || agentd.ledger_digest(d.payload_sha256);
CREATE FUNCTION agentd.ledger_payload(p agentd.hook_payloads) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN p.salt || agentd.ledger_text(p.reason) || agentd.ledger_text(p.patch) || agentd.ledger_text(p.annotations);
COMMENT ON FUNCTION agentd.ledger_text(text) IS 'A text as the ledger hashes it.';
COMMENT ON FUNCTION agentd.ledger_integer(bigint) IS 'An integer as the ledger hashes it.';
COMMENT ON FUNCTION agentd.ledger_boolean(boolean) IS 'A boolean as the ledger hashes it.';
COMMENT ON FUNCTION agentd.ledger_digest(bytea) IS 'A digest as the ledger hashes it.';
COMMENT ON FUNCTION agentd.ledger_time(timestamptz) IS 'The microseconds since 1970 that the ledger hashes of a time.';
COMMENT ON FUNCTION agentd.ledger_list(text[]) IS 'A list of texts as the ledger hashes it.';
COMMENT ON FUNCTION agentd.ledger_row(agentd.hook_decisions) IS 'The bytes of a decision that its row_hash is the SHA-256 of.';
COMMENT ON FUNCTION agentd.ledger_payload(agentd.hook_payloads) IS 'The bytes of a payload that the payload_sha256 of its decision is the SHA-256 of.';

-- What is no number is a forgery, and marks a row that cannot be.
-- +goose StatementBegin
CREATE FUNCTION agentd.ledger_marks(session uuid)
    RETURNS TABLE (seq bigint, ledger_seq bigint, ledger_head text)
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT e.seq,
        CASE WHEN e.payload ->> 'ledger_seq' IS NULL THEN 0 WHEN e.payload ->> 'ledger_seq' ~ '^[0-9]{1,18}$' THEN (e.payload ->> 'ledger_seq')::bigint ELSE -1 END,
        coalesce(e.payload ->> 'ledger_head', '')
    FROM agentd.events AS e
    WHERE e.session_id = session AND e.type IN ('run.completed', 'run.failed', 'run.cancelled')
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.ledger_marks(uuid) IS 'Where the ledger of a session stood at the end of each run, as the log says: the event, the last row, its hash.';

-- +goose StatementBegin
CREATE FUNCTION agentd.verify_ledger(session uuid)
    RETURNS TABLE (ledger_seq bigint, decision_id uuid, problem text, got text, want text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
    AS $$
#variable_conflict use_column
DECLARE
    s       agentd.sessions;
    d       record;
    -- Of the row before.
    seq     bigint := 0;
    hash    bytea := '\x0000000000000000000000000000000000000000000000000000000000000000';
    event   bigint := 0;
    -- Where the log says that the ledger stood, and the last event of it that a row has passed.
    mark    record;
    ends    bigint[];
    rows    bigint[];
    n       integer := 1;
    ended   bigint := 0;
BEGIN
    SELECT * INTO s FROM agentd.sessions WHERE id = session;
    IF EXISTS (SELECT FROM agentd.tombstones AS t WHERE t.session_id = session) THEN
        IF s.id IS NOT NULL OR EXISTS (SELECT FROM agentd.hook_decisions AS h WHERE h.session_id = session) THEN
            problem := 'session'; got := 'it is there'; want := 'nothing of it: it was purged';
            RETURN NEXT;
        END IF;
    ELSIF s.id IS NULL THEN
        problem := 'session'; got := 'no session'; want := 'a session';
        RETURN NEXT;
    END IF;

    SELECT array_agg(m.seq ORDER BY m.ledger_seq, m.seq), array_agg(m.ledger_seq ORDER BY m.ledger_seq, m.seq) INTO ends, rows
    FROM agentd.ledger_marks(session) AS m;

    FOR d IN
        SELECT h.ledger_seq, h.decision_id, h.tenant_id, h.event_seq, h.prev_hash, h.row_hash, h.payload_sha256,
            sha256(agentd.ledger_row(h)) AS computed,
            p.decision_id AS payload, sha256(agentd.ledger_payload(p)) AS payload_computed
        FROM agentd.hook_decisions AS h
        LEFT JOIN agentd.hook_payloads AS p ON p.decision_id = h.decision_id
        WHERE h.session_id = session
        ORDER BY h.ledger_seq
    LOOP
        WHILE rows[n] < d.ledger_seq LOOP
            ended := greatest(ended, ends[n]);
            n := n + 1;
        END LOOP;
        ledger_seq := seq + 1; decision_id := NULL;
        IF d.ledger_seq <> seq + 1 THEN
            problem := 'missing'; got := 'no row'; want := 'rows up to ' || d.ledger_seq - 1;
            RETURN NEXT;
        END IF;
        ledger_seq := d.ledger_seq; decision_id := d.decision_id;
        IF d.ledger_seq = seq + 1 AND d.prev_hash IS DISTINCT FROM hash THEN
            problem := 'prev_hash'; got := encode(d.prev_hash, 'hex'); want := encode(hash, 'hex');
            RETURN NEXT;
        END IF;
        IF d.row_hash IS DISTINCT FROM d.computed THEN
            problem := 'row_hash'; got := encode(d.row_hash, 'hex'); want := coalesce(encode(d.computed, 'hex'), 'of a row that cannot be');
            RETURN NEXT;
        END IF;
        IF d.payload IS NOT NULL AND d.payload_sha256 IS DISTINCT FROM d.payload_computed THEN
            problem := 'payload'; got := coalesce(encode(d.payload_computed, 'hex'), 'of a payload that cannot be'); want := coalesce(encode(d.payload_sha256, 'hex'), 'no payload');
            RETURN NEXT;
        END IF;
        IF (d.event_seq BETWEEN greatest(event, ended + 1) AND coalesce(s.last_seq, d.event_seq)) IS NOT TRUE THEN
            problem := 'event_seq'; got := d.event_seq; want := concat(greatest(event, ended + 1), ' to ', s.last_seq);
            RETURN NEXT;
        END IF;
        IF s.id IS NOT NULL AND d.tenant_id IS DISTINCT FROM s.tenant_id THEN
            problem := 'tenant_id'; got := d.tenant_id; want := s.tenant_id;
            RETURN NEXT;
        END IF;
        IF d.ledger_seq > s.ledger_seq THEN
            problem := 'beyond_head'; got := 'a row'; want := 'no row after ' || s.ledger_seq;
            RETURN NEXT;
        ELSIF d.ledger_seq = s.ledger_seq AND d.row_hash IS DISTINCT FROM s.ledger_head THEN
            problem := 'ledger_head'; got := encode(d.row_hash, 'hex'); want := coalesce(encode(s.ledger_head, 'hex'), '');
            RETURN NEXT;
        END IF;
        seq := d.ledger_seq; hash := d.row_hash; event := greatest(event, d.event_seq);
    END LOOP;

    IF seq < s.ledger_seq THEN
        ledger_seq := seq + 1; decision_id := NULL;
        problem := 'missing'; got := 'no row'; want := 'rows up to ' || s.ledger_seq;
        RETURN NEXT;
    END IF;
    FOR mark IN
        SELECT m.*, h.decision_id, h.row_hash FROM agentd.ledger_marks(session) AS m
        LEFT JOIN agentd.hook_decisions AS h ON h.session_id = session AND h.ledger_seq = m.ledger_seq
        WHERE coalesce(encode(h.row_hash, 'hex'), '') <> m.ledger_head
        ORDER BY m.ledger_seq, m.seq
    LOOP
        ledger_seq := mark.ledger_seq; decision_id := mark.decision_id;
        problem := 'mark'; got := coalesce(encode(mark.row_hash, 'hex'), 'no row');
        want := concat_ws(', ', nullif(mark.ledger_head, ''), 'as event ' || mark.seq || ' says');
        RETURN NEXT;
    END LOOP;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.verify_ledger(uuid) IS 'What is wrong with the ledger of a session: edited, missing, reordered and invented rows, edited payloads, another head than the session or the log knows. No row means that nothing is.';

-- +goose StatementBegin
CREATE FUNCTION agentd.verify_ledgers(tenant text DEFAULT NULL)
    RETURNS TABLE (session_id uuid, ledger_seq bigint, decision_id uuid, problem text, got text, want text)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
    AS $$
    SELECT x.id, v.ledger_seq, v.decision_id, v.problem, v.got, v.want
    FROM (
        SELECT s.id FROM agentd.sessions AS s WHERE tenant IS NULL OR s.tenant_id = tenant
        UNION ALL
        SELECT DISTINCT d.session_id FROM agentd.hook_decisions AS d
        WHERE (tenant IS NULL OR d.tenant_id = tenant) AND NOT EXISTS (SELECT FROM agentd.sessions AS s WHERE s.id = d.session_id)
    ) AS x
    CROSS JOIN LATERAL agentd.verify_ledger(x.id) AS v
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.verify_ledgers(text) IS 'agentd.verify_ledger of every session of a tenant, or of all tenants, those included whose session is gone.';
