package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// version is that of the format, which is all that is known here of how an
// endpoint decides.
const version = "1"

// Webhook is an endpoint that is asked. It is safe for concurrent use. What it
// knows of the endpoint, such as whether it answers, it knows for this process.
type Webhook struct {
	settings  *settings
	hooks     hooks.Hooks
	limits    map[hooks.Gate]int // of an answer, in bytes; never changed
	slots     *slots
	breaker   *breaker
	transport *http.Transport
}

// New makes no connection. Its errors show no secret.
func New(cfg Config) (*Webhook, error) {
	s, err := cfg.check()
	if err != nil {
		return nil, err
	}
	w := &Webhook{
		settings: s, limits: map[hooks.Gate]int{}, slots: newSlots(s.Concurrency, s.Queue),
		breaker: &breaker{settings: s.Breaker, now: s.Now},
	}
	w.hooks = hooksAt(w)
	for _, r := range w.hooks.Set().Hooks {
		w.limits[r.Gate] = r.ReplyLimit
	}
	w.transport = newTransport(s)
	return w, nil
}

// Hooks are the endpoint's at its gates.
func (w *Webhook) Hooks() hooks.Hooks { return w.hooks }

// Close lets go of connections that nobody uses. Questions that are under way
// are not touched; more may be asked.
func (w *Webhook) Close() { w.transport.CloseIdleConnections() }

func (w *Webhook) options() []hooks.Option {
	own := []hooks.Option{hooks.OfKind(hooks.KindWebhook), hooks.WithConfig(w.settings.describe())}
	return append(append([]hooks.Option{}, w.settings.Options...), own...)
}

// The codes of failures. They are stored: a value is never renamed.
const (
	// CodeConnect: the host was not found, or nobody answers there.
	CodeConnect = "connect"
	// CodeTLS: there is somebody, who does not prove to be the host.
	CodeTLS = "tls"
	// CodeRefusedAddress: the host's address is none that may be asked.
	CodeRefusedAddress = "refused_address"
	// CodeConnectionLost: the connection broke before the answer was whole.
	CodeConnectionLost = "connection_lost"
	// CodeRedirect: the answer points elsewhere, where nobody is asked.
	CodeRedirect = "redirect"
	// CodeStatus, with the number behind it, is any other status but 200.
	CodeStatus = "status_"
	// CodeMalformed: the answer is not one.
	CodeMalformed = "malformed"
	// CodeWrongID: the answer is to no question, or to another one.
	CodeWrongID = "wrong_id"
	// CodeOversize: the answer is longer than the hook's limit.
	CodeOversize = "oversize"
	// CodeQueueFull: too many questions wait already.
	CodeQueueFull = "queue_full"
	// CodeCircuitOpen: the endpoint failed too often, and is not asked for a
	// while.
	CodeCircuitOpen = "circuit_open"
)

// failure is one of the hook, in words for people: they name the host, and
// nothing that it said.
func (w *Webhook) failure(o hooks.Outcome, code, format string, args ...any) *hooks.Failure {
	return &hooks.Failure{Outcome: o, Code: code, Err: fmt.Errorf("%s: %w", w.settings.url.Host, fmt.Errorf(format, args...))}
}

// ask asks the question and reads the answer.
func (w *Webhook) ask(ctx context.Context, q question, limit int, answer interface{ common() *head }) error {
	if left := w.breaker.refuses(); left > 0 {
		return w.open(left)
	}
	ok, err := w.slots.take(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return w.failure(hooks.OutcomeUnavailable, CodeQueueFull, "%d questions are under way and %d wait", w.settings.Concurrency, w.settings.Queue)
	}
	defer w.slots.give()
	p, left := w.breaker.enter()
	if left > 0 {
		return w.open(left)
	}
	result := failed // also of a panic
	defer func() { p.settle(result) }()
	err = w.exchange(ctx, q, limit, answer)
	switch {
	case err == nil:
		result = answered
	case errors.Is(ctx.Err(), context.Canceled):
		result = givenUp
	}
	return err
}

func (w *Webhook) open(left time.Duration) error {
	return w.failure(hooks.OutcomeUnavailable, CodeCircuitOpen, "did not answer %d times in a row; it is asked again in %s",
		w.settings.Breaker.Failures, left.Round(time.Millisecond))
}

func (w *Webhook) exchange(ctx context.Context, q question, limit int, answer interface{ common() *head }) error {
	raw, err := w.post(ctx, q.ID, []byte(encode(q)), limit)
	if err != nil {
		return err
	}
	err = decode(raw, limit, answer)
	switch {
	case errors.Is(err, errElements):
		return w.failure(hooks.OutcomeOversize, CodeOversize, "%w", err)
	case err != nil:
		return w.failure(hooks.OutcomeMalformed, CodeMalformed, "%w", err)
	case answer.common().ID != q.ID:
		return w.failure(hooks.OutcomeMalformed, CodeWrongID, "the answer does not name the id that was asked about")
	}
	return nil
}

// request is the signed question.
func (w *Webhook) request(ctx context.Context, id string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.settings.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	now := w.settings.Now()
	var signatures []string
	for _, s := range w.settings.Secrets {
		signatures = append(signatures, s.sign(id, now, body))
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "User-Agent": {"agentd"},
		"Webhook-Id": {id}, "Webhook-Timestamp": {fmt.Sprint(now.Unix())}, "Webhook-Signature": {strings.Join(signatures, " ")},
		// It is not sent. It says that the question may be sent once more if the
		// connection was an old one and is found dead before anything was read:
		// receivers know a repeat by its id.
		"Idempotency-Key": {},
	}
	return r, nil
}
