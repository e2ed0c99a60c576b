package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/tool/builtin"
)

// memories is a store in memory, or one that is down.
type memories struct {
	kept  map[string]string // by tenant and key
	limit int               // the last search's
	down  error
}

func (m *memories) ReadMemory(_ context.Context, tenantID, key string) (string, bool, error) {
	content, ok := m.kept[tenantID+"/"+key]
	return content, ok, m.down
}

func (m *memories) WriteMemory(_ context.Context, tenantID, key, content string) error {
	if m.down == nil {
		m.kept[tenantID+"/"+key] = content
	}
	return m.down
}

func (m *memories) SearchMemories(_ context.Context, tenantID, query string, limit int) ([]loop.Memory, error) {
	m.limit = limit
	var found []loop.Memory
	for path, content := range m.kept {
		if key, ok := strings.CutPrefix(path, tenantID+"/"); ok && strings.Contains(content, query) {
			found = append(found, loop.Memory{Key: key, Content: content})
		}
	}
	slices.SortFunc(found, func(a, b loop.Memory) int { return strings.Compare(a.Key, b.Key) })
	return found, m.down
}

func (m *memories) DeleteMemory(_ context.Context, tenantID, key string) (bool, error) {
	_, ok := m.kept[tenantID+"/"+key]
	delete(m.kept, tenantID+"/"+key)
	return ok, m.down
}

func (m *memories) ClearMemories(_ context.Context, tenantID string) (n int64, err error) {
	for path := range m.kept {
		if strings.HasPrefix(path, tenantID+"/") {
			delete(m.kept, path)
			n++
		}
	}
	return n, m.down
}

// bundle holds all builtin tools over one store.
type bundle struct {
	tools map[string]loop.Tool
	store *memories
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{tools: make(map[string]loop.Tool), store: &memories{kept: make(map[string]string)}}
	tools, err := builtin.Tools(builtin.Surroundings{
		Now:      func() time.Time { return time.Date(2026, 7, 1, 10, 30, 0, 0, time.UTC) },
		Memories: b.store,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		b.tools[tool.Spec().Name] = tool
	}
	return b
}

func (b *bundle) call(t *testing.T, tenant, name, arguments string) (string, error) {
	t.Helper()
	if err := b.tools[name].Validate(json.RawMessage(arguments)); err != nil {
		t.Fatal(err)
	}
	out, err := b.tools[name].Call(t.Context(), loop.ToolInput{CallID: "c", Attempt: 1, TenantID: tenant, Arguments: []byte(arguments)})
	return out.Content, err
}

func TestWhatTheToolsAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// The steps of one story, with two tenants that see nothing of each other.
	for _, step := range []struct{ tenant, tool, arguments, want string }{
		{"a", "ping", ``, "pong"},
		{"a", "ping", `{"message":"hi"}`, "pong: hi"},
		{"a", "get_time", `{}`, "Wednesday, 2026-07-01 10:30:00 UTC (+00:00)"},
		{"a", "get_time", `{"zone":"Europe/Oslo"}`, "Wednesday, 2026-07-01 12:30:00 CEST (+02:00)"},
		{"a", "get_time", `{"zone":"Asia/Kathmandu"}`, "Wednesday, 2026-07-01 16:15:00 +0545 (+05:45)"},
		{"a", "memory_read", `{"key":"name"}`, `nothing is remembered under the key "name"`},
		{"a", "memory_search", `{}`, "nothing was found"},
		{"a", "memory_write", `{"key":"name","content":"Ada"}`, `remembered under the key "name"`},
		{"a", "memory_write", `{"key":"name","content":"Ada L."}`, `remembered under the key "name"`},
		{"a", "memory_write", `{"key":"pet","content":"a cat\u0000\ud83d"}`, `remembered under the key "pet"`},
		{"a", "memory_read", `{"key":"name"}`, "Ada L."},
		{"a", "memory_search", `{"query":""}`, "name: Ada L.\npet: a cat\uFFFD\uFFFD"},
		{"a", "memory_search", `{"query":"Ada","limit":5}`, "name: Ada L."},
		{"b", "memory_read", `{"key":"name"}`, `nothing is remembered under the key "name"`},
		{"b", "memory_search", `{}`, "nothing was found"},
		{"b", "memory_delete", `{"key":"name"}`, `nothing is remembered under the key "name"`},
		{"b", "memory_write", `{"key":"name","content":"Bob"}`, `remembered under the key "name"`},
		{"a", "memory_delete", `{"key":"name"}`, `forgot what was under the key "name"`},
		{"a", "memory_delete", `{"key":"name"}`, `nothing is remembered under the key "name"`},
		{"a", "memory_search", `{}`, "pet: a cat\uFFFD\uFFFD"},
		{"a", "memory_clear", `{}`, "forgot everything: 1 keys"},
		{"a", "memory_clear", `{}`, "forgot everything: 0 keys"},
		{"b", "memory_read", `{"key":"name"}`, "Bob"},
	} {
		got, err := b.call(t, step.tenant, step.tool, step.arguments)
		if err != nil || got != step.want {
			t.Errorf("%s %s: got %q and error %v, want %q", step.tool, step.arguments, got, err, step.want)
		}
	}
}

func TestWhatTheToolsRefuse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tt := range []struct{ tool, arguments, want string }{
		{"get_time", `{"zone":"Middle/Earth"}`, `time zone "Middle/Earth" is unknown`},
		{"get_time", `{"zone":"Local"}`, `time zone "Local" is unknown`},
		{"get_time", `{"zone":"../../etc/passwd"}`, "is unknown"},
		{"memory_write", `{"key":" ","content":"x"}`, "key: must not be blank"},
		{"memory_write", `{"key":"` + strings.Repeat("ü", 100) + `k","content":"x"}`, "key: has 201 bytes, at most 200"},
		{"memory_write", `{"key":"k","content":"` + strings.Repeat("x", 16385) + `"}`, "content: has 16385 bytes, at most 16384"},
	} {
		if _, err := b.call(t, "a", tt.tool, tt.arguments); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q in it", tt.tool, err, tt.want)
		}
	}
	if len(b.store.kept) > 0 {
		t.Errorf("stored %v", b.store.kept)
	}
}

func TestTheLongestMemoryIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, content := strings.Repeat("ü", loop.MaxMemoryKey/2), strings.Repeat("ü", loop.MaxMemoryContent/2)
	if _, err := b.call(t, "a", "memory_write", `{"key":"`+key+`","content":"`+content+`"}`); err != nil || b.store.kept["a/"+key] != content {
		t.Errorf("got error %v and %d bytes", err, len(b.store.kept["a/"+key]))
	}
}

func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.kept["a/k"] = strings.Repeat("😀", 1000)
	for arguments, limit := range map[string]int{`{}`: 20, `{"limit":-1}`: 20, `{"limit":7}`: 7, `{"limit":1000000}`: 50} {
		got, err := b.call(t, "a", "memory_search", arguments)
		if err != nil || b.store.limit != limit {
			t.Errorf("%s: asked for %d and got error %v, want %d", arguments, b.store.limit, err, limit)
		}
		if len(got) > 510 || !strings.HasSuffix(got, "😀…") {
			t.Errorf("got %d bytes: %q", len(got), got)
		}
	}
}

func TestAStoresErrorIsNotShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.down = errors.New("dial tcp db.internal:5432")
	for tool, arguments := range map[string]string{
		"memory_read": `{"key":"k"}`, "memory_write": `{"key":"k","content":"c"}`, "memory_search": `{}`,
		"memory_delete": `{"key":"k"}`, "memory_clear": `{}`,
	} {
		_, err := b.call(t, "a", tool, arguments)
		if !errors.Is(err, b.store.down) || strings.Contains(err.Error(), "internal") {
			t.Errorf("%s: got error %v, want one that hides its cause", tool, err)
		}
	}
}

func TestWhichToolsThereAre(t *testing.T) {
	t.Parallel()
	names := func(s builtin.Surroundings) (out []string) {
		tools, err := builtin.Tools(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			spec := tool.Spec()
			if !spec.Idempotent || spec.Description == "" || !json.Valid(spec.Schema) {
				t.Errorf("spec %+v", spec)
			}
			out = append(out, spec.Name)
		}
		return out
	}
	if got := names(builtin.Surroundings{}); !slices.Equal(got, []string{"ping", "get_time"}) {
		t.Errorf("without a store: %v", got)
	}
	all := []string{"ping", "get_time", "memory_read", "memory_write", "memory_search", "memory_delete", "memory_clear"}
	if got := names(builtin.Surroundings{Memories: &memories{}}); !slices.Equal(got, all) {
		t.Errorf("with a store: %v", got)
	}
}

func TestTheClockIsTheMachinesUnlessAnotherIsGiven(t *testing.T) {
	t.Parallel()
	tools, err := builtin.Tools(builtin.Surroundings{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := tools[1].Call(t.Context(), loop.ToolInput{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse("Monday, 2006-01-02 15:04:05 MST (-07:00)", out.Content)
	if since := time.Since(at); err != nil || since < 0 || since > time.Minute {
		t.Errorf("got %q, %v ago, error %v", out.Content, since, err)
	}
}
