-- +goose Up
CREATE TABLE agentd.memories (
    tenant_id  text        NOT NULL REFERENCES agentd.tenants (id),
    key        text        NOT NULL,
    content    text        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT agentd.clock(),
    tsv        tsvector    GENERATED ALWAYS AS (to_tsvector('simple', key || ' ' || content)) STORED,
    PRIMARY KEY (tenant_id, key),
    CONSTRAINT memories_key_not_empty CHECK (key <> '')
);
CREATE INDEX memories_tsv_idx ON agentd.memories USING gin (tsv);
COMMENT ON TABLE agentd.memories IS 'What agents were asked to remember, shared by all sessions of a tenant.';
COMMENT ON COLUMN agentd.memories.tenant_id IS 'The owner.';
COMMENT ON COLUMN agentd.memories.key IS 'The name of the memory, unique within the tenant.';
COMMENT ON COLUMN agentd.memories.content IS 'The remembered text.';
COMMENT ON COLUMN agentd.memories.updated_at IS 'When it was last written.';
COMMENT ON COLUMN agentd.memories.tsv IS 'Words of key and content, for the search.';
