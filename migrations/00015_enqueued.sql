-- +goose Up
ALTER TABLE agentd.messages
    ADD COLUMN enqueued boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT messages_stored_at_or_after_its_position,
    ADD CONSTRAINT messages_position_from_1 CHECK (enqueued OR position >= 1),
    ADD CONSTRAINT messages_enqueued_is_of_a_run CHECK (NOT enqueued OR run_id IS NOT NULL);
CREATE INDEX messages_enqueued_idx ON agentd.messages (session_id, position) WHERE enqueued AND replaced_seq IS NULL;
COMMENT ON COLUMN agentd.messages.enqueued IS 'The run of the message has not begun, and no model sees the message; it never will if replaced_seq is set.';
COMMENT ON COLUMN agentd.messages.position IS 'Orders the messages of the session. A tool result stands where its call was proposed, a message that was enqueued where its run began, or where it left the queue. While messages are enqueued, orders those among each other: the lowest is next.';
COMMENT ON COLUMN agentd.messages.replaced_seq IS 'Seq of the event that took the message out of the conversation, or out of the queue; NULL while it is in it.';
COMMENT ON COLUMN agentd.runs.created_seq IS 'Seq of run.created. Runs that were enqueued may begin in another order.';
