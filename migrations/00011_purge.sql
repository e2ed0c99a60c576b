-- +goose Up
CREATE TABLE agentd.tombstones (
    session_id  uuid        NOT NULL PRIMARY KEY,
    tenant_id   text        NOT NULL REFERENCES agentd.tenants (id),
    events      bigint      NOT NULL,
    decisions   bigint      NOT NULL,
    last_seq    bigint      NOT NULL,
    ledger_seq  bigint      NOT NULL,
    ledger_head bytea,
    xid         xid8        NOT NULL,
    purged_at   timestamptz NOT NULL,
    purged_by   text        NOT NULL,
    reason      text        NOT NULL,
    CONSTRAINT tombstones_say_who_and_why CHECK (purged_by <> '' AND reason <> '')
);
CREATE INDEX tombstones_tenant_idx ON agentd.tombstones (tenant_id, purged_at);
COMMENT ON TABLE agentd.tombstones IS 'Sessions that were purged. A row is written by agentd.purge_session alone, in the transaction in which everything else of the session leaves, and is never changed.';
COMMENT ON COLUMN agentd.tombstones.session_id IS 'The session that is gone.';
COMMENT ON COLUMN agentd.tombstones.tenant_id IS 'Who owned it.';
COMMENT ON COLUMN agentd.tombstones.events IS 'How many events left.';
COMMENT ON COLUMN agentd.tombstones.decisions IS 'How many rows of the ledger left: ledger_seq, unless some were missing.';
COMMENT ON COLUMN agentd.tombstones.last_seq IS 'The seq of its last event.';
COMMENT ON COLUMN agentd.tombstones.ledger_seq IS 'The ledger_seq of its last decision, 0 if it had none.';
COMMENT ON COLUMN agentd.tombstones.ledger_head IS 'The row_hash of that decision: an earlier export of the session is checked against it. NULL if it had none.';
COMMENT ON COLUMN agentd.tombstones.xid IS 'The transaction that purged it; the rows let themselves be deleted by that one only.';
COMMENT ON COLUMN agentd.tombstones.purged_at IS 'When it was purged.';
COMMENT ON COLUMN agentd.tombstones.purged_by IS 'Who purged it, as they said; without a word, the database user.';
COMMENT ON COLUMN agentd.tombstones.reason IS 'Why it was purged, as they said.';

-- Whoever writes a tombstone, it says what the session's row says, and the
-- transaction that it lets delete is their own.
-- +goose StatementBegin
CREATE FUNCTION agentd.tombstone_of_the_session() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    SELECT s.tenant_id, s.last_seq, s.ledger_seq, s.ledger_head,
        (SELECT count(*) FROM agentd.events AS e WHERE e.session_id = s.id),
        (SELECT count(*) FROM agentd.hook_decisions AS d WHERE d.session_id = s.id)
    INTO NEW.tenant_id, NEW.last_seq, NEW.ledger_seq, NEW.ledger_head, NEW.events, NEW.decisions
    FROM agentd.sessions AS s WHERE s.id = NEW.session_id;
    NEW.xid := pg_current_xact_id();
    NEW.purged_at := agentd.clock();
    RETURN NEW;
END
$$;

-- A tombstone over something that is still there would let a part of it be
-- taken away.
CREATE FUNCTION agentd.tombstone_is_alone() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF EXISTS (SELECT FROM agentd.sessions WHERE id = NEW.session_id)
        OR EXISTS (SELECT FROM agentd.events WHERE session_id = NEW.session_id)
        OR EXISTS (SELECT FROM agentd.hook_decisions WHERE session_id = NEW.session_id)
    THEN
        RAISE EXCEPTION 'session % is not gone: only agentd.purge_session writes its tombstone', NEW.session_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION agentd.refuse_unless_purged() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF EXISTS (SELECT FROM agentd.tombstones WHERE session_id = OLD.session_id AND xid = pg_current_xact_id()) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'agentd.% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'Rows leave with their whole session: SELECT agentd.purge_session(session, reason).';
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.tombstone_of_the_session() IS 'Fills in what a tombstone says of its session.';
COMMENT ON FUNCTION agentd.tombstone_is_alone() IS 'Refuses the commit of a tombstone whose session is still there.';
COMMENT ON FUNCTION agentd.refuse_unless_purged() IS 'Lets a row go only in the transaction that wrote the tombstone of its session.';

CREATE TRIGGER tombstones_of_the_session BEFORE INSERT ON agentd.tombstones
    FOR EACH ROW EXECUTE FUNCTION agentd.tombstone_of_the_session();
CREATE CONSTRAINT TRIGGER tombstones_are_alone AFTER INSERT ON agentd.tombstones
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION agentd.tombstone_is_alone();
CREATE TRIGGER tombstones_append_only BEFORE UPDATE OR DELETE ON agentd.tombstones
    FOR EACH ROW EXECUTE FUNCTION agentd.ledger_refuse_change();
CREATE TRIGGER tombstones_no_truncate BEFORE TRUNCATE ON agentd.tombstones
    FOR EACH STATEMENT EXECUTE FUNCTION agentd.ledger_refuse_change();

DROP TRIGGER hook_decisions_append_only ON agentd.hook_decisions;
CREATE TRIGGER hook_decisions_append_only BEFORE UPDATE ON agentd.hook_decisions
    FOR EACH ROW EXECUTE FUNCTION agentd.ledger_refuse_change();
CREATE TRIGGER hook_decisions_leave_with_their_session BEFORE DELETE ON agentd.hook_decisions
    FOR EACH ROW EXECUTE FUNCTION agentd.refuse_unless_purged();

-- A payload is erased or stays as it is.
CREATE TRIGGER hook_payloads_no_update BEFORE UPDATE ON agentd.hook_payloads
    FOR EACH ROW EXECUTE FUNCTION agentd.ledger_refuse_change();
CREATE TRIGGER hook_payloads_no_truncate BEFORE TRUNCATE ON agentd.hook_payloads
    FOR EACH STATEMENT EXECUTE FUNCTION agentd.ledger_refuse_change();

DROP TRIGGER events_append_only ON agentd.events;
DROP TRIGGER events_no_truncate ON agentd.events;
DROP FUNCTION agentd.events_refuse_change();
CREATE TRIGGER events_append_only BEFORE UPDATE ON agentd.events
    FOR EACH ROW EXECUTE FUNCTION agentd.ledger_refuse_change();
CREATE TRIGGER events_leave_with_their_session BEFORE DELETE ON agentd.events
    FOR EACH ROW WHEN (OLD.type <> 'assistant.delta') EXECUTE FUNCTION agentd.refuse_unless_purged();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON agentd.events
    FOR EACH STATEMENT EXECUTE FUNCTION agentd.ledger_refuse_change();

-- Deleting a call looks for approvals of it.
CREATE INDEX approvals_call_idx ON agentd.approvals (call_id);

-- +goose StatementBegin
CREATE FUNCTION agentd.purge_session(session uuid, reason text, purged_by text DEFAULT session_user)
    RETURNS agentd.tombstones
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    purged agentd.tombstones;
BEGIN
    -- An append that is under way is waited for; the next one finds no session.
    PERFORM FROM agentd.sessions WHERE id = session FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no session %', session USING ERRCODE = 'no_data_found';
    END IF;
    IF EXISTS (SELECT FROM agentd.runs AS r WHERE r.session_id = session AND r.ended_at IS NULL) THEN
        RAISE EXCEPTION 'session % has a run that has not ended', session
            USING ERRCODE = 'object_in_use', HINT = 'Cancel it first.';
    END IF;
    INSERT INTO agentd.tombstones (session_id, purged_by, reason)
        VALUES (session, purge_session.purged_by, purge_session.reason) RETURNING * INTO purged;
    DELETE FROM agentd.hook_payloads AS p USING agentd.hook_decisions AS d WHERE d.session_id = session AND p.decision_id = d.decision_id;
    DELETE FROM agentd.hook_decisions AS d WHERE d.session_id = session;
    DELETE FROM agentd.approvals AS a WHERE a.session_id = session;
    DELETE FROM agentd.tool_calls AS k WHERE k.session_id = session;
    DELETE FROM agentd.messages AS m WHERE m.session_id = session;
    DELETE FROM agentd.turns AS t WHERE t.session_id = session;
    DELETE FROM agentd.runs AS r WHERE r.session_id = session;
    DELETE FROM agentd.events AS e WHERE e.session_id = session;
    DELETE FROM agentd.sessions AS s WHERE s.id = session;
    RETURN purged;
END
$$;

CREATE FUNCTION agentd.erase_payloads(session uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    erased bigint;
BEGIN
    PERFORM FROM agentd.sessions WHERE id = session;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no session %', session USING ERRCODE = 'no_data_found';
    END IF;
    DELETE FROM agentd.hook_payloads AS p USING agentd.hook_decisions AS d WHERE d.session_id = session AND p.decision_id = d.decision_id;
    GET DIAGNOSTICS erased = ROW_COUNT;
    RETURN erased;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION agentd.purge_session(uuid, text, text) IS 'Deletes everything of a session and leaves a tombstone with the head of its ledger. The only way in which rows leave the log and the ledger.';
COMMENT ON FUNCTION agentd.erase_payloads(uuid) IS 'Deletes what hooks said in a session and what they changed, and returns how many payloads that were. The ledger stays valid.';
-- They do what their owner may: it is for the owner to say who may call them.
REVOKE EXECUTE ON FUNCTION agentd.purge_session(uuid, text, text), agentd.erase_payloads(uuid) FROM PUBLIC;
