package hooks

import "time"

// Notification is something that has happened and is committed, as those are told who
// do not run in agentd's process. One of the pointers is set.
type Notification struct {
	// Seq is the number of the event within the session. With the kind it tells a
	// repeat.
	Seq int64
	// At is the writer's clock.
	At time.Time

	RunStart           *RunStart
	TurnStart          *TurnStart
	ToolExecutionStart *ToolExecutionStart
	TurnEnd            *TurnEnd
	RunEnd             *RunEnd
}

// NotificationPage is what has happened behind a cursor, those of a session in its
// order. There may be nothing in it although the cursor has moved on.
type NotificationPage struct {
	List []Notification
	// Cursor is where the page ends.
	Cursor string
	// More says that the page was full: the next one is there.
	More bool
	// Unsettled says that there is something behind it that may not be told yet, since
	// a transaction that may come before is still open.
	Unsettled bool
}
