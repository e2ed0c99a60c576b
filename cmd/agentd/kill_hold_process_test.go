package main

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// appendHold makes the append that carries an event of some type wait in the
// middle of its transaction, at the server: the process that sent it can be
// killed between two steps, with the append lost or committed after its death.
type appendHold struct {
	db   *storetest.DB
	conn *pgxpool.Conn // has the lock for which the append waits
}

// prepareHolds must come before holdAppend.
func prepareHolds(t *testing.T, db *storetest.DB) {
	t.Helper()
	execute(t, db, `CREATE TABLE public.held (type text NOT NULL, turn_no integer NOT NULL, moment text NOT NULL)`)
	execute(t, db, `CREATE FUNCTION public.wait_if_held() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF EXISTS (SELECT FROM public.held AS h
				WHERE h.type = NEW.type AND h.turn_no = coalesce(NEW.turn_no, 0) AND h.moment = TG_ARGV[0]) THEN
				PERFORM pg_advisory_xact_lock_shared(4711);
			END IF;
			RETURN NEW;
		END $$`)
	execute(t, db, `CREATE TRIGGER wait_if_held BEFORE INSERT ON agentd.events FOR EACH ROW EXECUTE FUNCTION public.wait_if_held('insert')`)
	execute(t, db, `CREATE CONSTRAINT TRIGGER wait_to_commit AFTER INSERT ON agentd.events DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION public.wait_if_held('commit')`)
}

// holdAppend holds every append with such an event; turn is 0 for events
// outside a turn. The caller ends it.
func holdAppend(t *testing.T, db *storetest.DB, of event.Type, turn int) *appendHold {
	t.Helper()
	return holdAt(t, db, of, turn, "insert")
}

// holdCommit holds such an append when nothing but its commit is left to do. It
// is for those that take several round trips, which would be lost in any case
// if they were held earlier.
func holdCommit(t *testing.T, db *storetest.DB, of event.Type, turn int) *appendHold {
	t.Helper()
	return holdAt(t, db, of, turn, "commit")
}

func holdAt(t *testing.T, db *storetest.DB, of event.Type, turn int, moment string) *appendHold {
	t.Helper()
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `INSERT INTO public.held (type, turn_no, moment) VALUES ($1, $2, $3)`, string(of), turn, moment)
	return &appendHold{db: db, conn: conn}
}

// await returns the process id of the server's end of the connection whose
// append waits.
func (h *appendHold) await(t *testing.T) string {
	t.Helper()
	return awaitRow(t, h.db, `
		SELECT pid::text FROM pg_locks
		WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// end lets the append go on, unless it is to be lost.
func (h *appendHold) end(t *testing.T, pid string, lose bool) {
	t.Helper()
	execute(t, h.db, `DELETE FROM public.held`)
	if lose && !scalar[bool](t, h.db, fmt.Sprintf(`SELECT pg_terminate_backend(%s, 60000)`, pid)) {
		t.Error("the held append does not end")
	}
	if _, err := h.conn.Exec(t.Context(), `SELECT pg_advisory_unlock(4711)`); err != nil {
		t.Error(err)
	}
	h.conn.Release()
}
