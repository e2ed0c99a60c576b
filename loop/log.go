package loop

import (
	"context"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Log is the one write path and the truth of every session. Implementations
// are safe for concurrent use. A foreign tenant's id, and a text that is no
// id at all, behave exactly like an id that does not exist: [ErrNotFound].
type Log interface {
	// Append adds events to a session, all or none. It is a compare-and-set:
	// unless the session's last seq is a.Expected (and its epoch a.Epoch, when
	// that is not 0) nothing is written and the error is [ErrConflict] or
	// [ErrLeaseLost]. The time for an answer to an approval counts from the
	// append that asks for it. Appending the same a.ID twice has the effect of
	// appending it once, so a caller that does not know whether an Append
	// went through repeats it unchanged.
	Append(ctx context.Context, a Append) (Appended, error)

	// Head returns where a session stands. Its LastSeq is read first, so a
	// plan made on the head and appended at that LastSeq holds.
	Head(ctx context.Context, tenantID, sessionID string) (Head, error)

	// HeadByExternalID is Head for the session that a client gave this id.
	// Deleting a session frees its external id: deleted ones are not found.
	HeadByExternalID(ctx context.Context, tenantID, externalID string) (Head, error)

	// Request looks up an idempotency key: what became of its newest use in
	// the last 24 h by the log's clock (a run, or an input that was handled,
	// blocked or rejected), or false.
	Request(ctx context.Context, tenantID, sessionID, key string) (Request, bool, error)

	// Tail is [State.Tail] of the whole session: [ErrNotFound] if the message
	// is not in the conversation, or not any more.
	Tail(ctx context.Context, tenantID, sessionID, messageID string) (Tail, error)

	// Load returns the state that an engine needs to advance a run: the run
	// folded from its own events (of its deltas only those of a model call
	// that is still open), the session's conversation, last seq and epoch,
	// all from one snapshot. Of the session's other runs only those are in it
	// that are enqueued, as [NextRuns]. A run whose events or messages cannot be
	// folded is a [BadStateError], and the state is then what the tables say:
	// enough to end the run, and no more.
	Load(ctx context.Context, tenantID, sessionID, runID string) (State, error)

	// Approval finds the session and the run of an approval, by its id alone.
	Approval(ctx context.Context, tenantID, approvalID string) (sessionID, runID string, err error)

	// Events returns up to limit events with a seq above after, in order.
	Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error)

	// Watch returns a channel that gets a value when somebody may have
	// appended to the session, and a function that ends the watch. The value
	// is the seq that the session is known to have reached, so that a writer
	// need not read what it wrote itself, or 0 for an order to look. Values
	// are coalesced and may be spurious or late; they are a hint to read.
	Watch(sessionID string) (<-chan int64, func())
}

// Append is one atomic addition to a session's log.
type Append struct {
	// ID is a fresh UUID, the same when the append is repeated.
	ID        string
	TenantID  string
	SessionID string
	// Expected is the last seq that the plan was made on. 0 means that the
	// session does not exist yet: the first event is session.created.
	Expected int64
	// Epoch is the lease under which the writer acts; 0 for a writer without
	// one.
	Epoch int64
	// Events are written with the seqs Expected+1, Expected+2, … There is no
	// append without an event.
	Events []event.Event
	// Ledger are the decisions that the events follow from, in order. The first
	// is chained to the ledger's head at Expected.
	Ledger []LedgerRow
	// Jobs become visible to workers with the events, or not at all.
	Jobs []Job
	// Answers is an approval, "" for none: unless there is still time to answer it
	// when the append is written, nothing is, and the error is [ErrExpired].
	Answers string
	// Deltas marks an append that holds nothing but deltas: it may wait for
	// the commit window, and losing it loses only a tail.
	Deltas bool
}

// LedgerRow is a decision on its way into the ledger, or read from it.
type LedgerRow struct {
	hooks.Row
	// Salt is what PayloadSHA256 was made with; it is stored with the payload.
	Salt [32]byte
	// Hash is Row.Hash().
	Hash [32]byte
}

// LedgerHead is the last row of a session's ledger; the zero value is an empty
// ledger.
type LedgerHead struct {
	Seq  int64
	Hash [32]byte
}

// Appended is a successful [Append].
type Appended struct {
	// Events are the events as stored, with their seqs.
	Events []event.Event
	// LastSeq is the last of them.
	LastSeq int64
}

// Job asks some worker to advance a run. Only the job whose ticket is the
// run's current one may claim it.
type Job struct {
	TenantID  string
	SessionID string
	RunID     string
	Ticket    int64
	// NotBefore delays the job; zero means at once.
	NotBefore time.Time
}

// Head is where a session stands.
type Head struct {
	TenantID   string
	SessionID  string
	ExternalID string
	// Title, User and Metadata are as in [State].
	Title    string
	User     string
	Metadata map[string]string
	LastSeq  int64
	Epoch    int64
	// Deleted sessions are visible here and nowhere else, so that a command
	// on one can say not found.
	Deleted bool
	// Ledger is the head of the ledger at LastSeq.
	Ledger LedgerHead
	// ActiveRunID is the run that is queued, running or waiting, "" if there is
	// none.
	ActiveRunID string
	// LastRunID is the run that began last, "" if there is none.
	LastRunID string
	// Waiting says that the active run waits for people: nothing happens until
	// they answer.
	Waiting bool
}

// Request is what an idempotency key stands for.
type Request struct {
	// Reply is set, and the ids are empty, if a hook handled the message
	// itself.
	Reply   string
	Handled bool
	// Blocked is set, and the ids are empty, if a hook refused the message.
	Blocked *BlockedError
	// Rejected is set, and the ids are empty, if the session was busy.
	Rejected           *BusyError
	RunID              string
	MessageID          string
	AssistantMessageID string
	// Enqueued says that the run has yet to begin.
	Enqueued      bool
	RequestSHA256 string
	// Seq is the seq before the first event of the run, or before the event
	// that says what else became of the message.
	Seq int64
}
