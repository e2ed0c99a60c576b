package openai_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// playback is how the fake provider answers one request.
type playback struct {
	status int // 0 means 200
	header map[string]string
	body   string
	// cuts are the offsets at which the body is cut into writes, each of
	// which is flushed; every is the same at regular intervals.
	cuts  []int
	every int
	// end is what follows the body: "" ends it properly, "cut" breaks the
	// connection without the end of the chunked body, "stall" keeps it open
	// until the client gives up.
	end string
	// beforeHeaders stalls before anything is sent.
	beforeHeaders bool
}

func (p playback) answer() openaitest.Answer {
	a := openaitest.Answer{Status: p.status, Body: []byte(p.body), Cuts: p.cuts, Every: p.every}
	for name, value := range p.header {
		a = a.With(name, value)
	}
	switch p.end {
	case "cut":
		a.End = openaitest.EndCut
	case "stall":
		a = a.Hold(openaitest.AtEnd, openaitest.NewHold())
	}
	if p.beforeHeaders {
		a = a.Hold(openaitest.BeforeHeaders, openaitest.NewHold())
	}
	return a
}

// fakeProvider is a strict provider.
type fakeProvider struct {
	*openaitest.Provider
}

func newFake(t *testing.T, playbacks ...playback) fakeProvider {
	t.Helper()
	var answers []openaitest.Answer
	for _, p := range playbacks {
		answers = append(answers, p.answer())
	}
	return fakeProvider{openaitest.New(t, answers...)}
}

func (f fakeProvider) model(t *testing.T, cfg openai.Config) *openai.Model {
	t.Helper()
	if cfg.BaseURL == "" {
		cfg.BaseURL = f.URL
	}
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// given waits until the first answer is over or was given up.
func (f fakeProvider) given(t *testing.T) { <-f.Await(t, 1).Ended() }

type sentRequest struct {
	auth   string
	header http.Header
	body   string
}

func (f fakeProvider) sent() (list []sentRequest) {
	for _, r := range f.Requests() {
		h := make(http.Header)
		for _, line := range r.Header {
			h.Add(line.Name, line.Value)
		}
		list = append(list, sentRequest{auth: r.Get("Authorization"), header: h, body: string(r.Body)})
	}
	return list
}

// fixture returns a recorded stream: this package's own, or the fake
// provider's.
func fixture(t testing.TB, name string) string {
	t.Helper()
	if slices.Contains(openaitest.Fixtures(), name) {
		return string(openaitest.FixtureBytes(name))
	}
	data, err := os.ReadFile(filepath.Join("testdata", name+".sse"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
