package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// Script is a checked script. It never changes after [Parse], so any number
// of models may share it.
type Script struct {
	scenarios []scenario
}

type document struct {
	Scenarios []scenario `json:"scenarios"`
}

type scenario struct {
	Name    string   `json:"name"`
	Match   match    `json:"match"`
	Answers []answer `json:"answers"`
}

type answer struct {
	Steps []step `json:"steps"`
}

// Parse reads a script and checks all of it: an unknown key, a step that does
// two things or none, a step behind the end of its answer and a template that
// names nothing are errors that say where they are.
func Parse(data []byte) (*Script, error) {
	var doc document
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("parse script: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("parse script: text after the end of the JSON document")
	}
	if len(doc.Scenarios) == 0 {
		return nil, errors.New("parse script: scenarios: there are none")
	}
	for i := range doc.Scenarios {
		if i > 0 && doc.Scenarios[i-1].Match.Default {
			return nil, fmt.Errorf("parse script: scenarios[%d]: never reached, the default before it matches everything", i)
		}
		if err := doc.Scenarios[i].check(); err != nil {
			return nil, fmt.Errorf("parse script: scenarios[%d].%w", i, err)
		}
	}
	return &Script{scenarios: doc.Scenarios}, nil
}

// Load reads and parses the script at path.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// find returns the first scenario that matches the user's text, and what its
// named groups captured.
func (s *Script) find(text string) (scenario, map[string]string, bool) {
	for _, sc := range s.scenarios {
		if groups, ok := sc.Match.matches(text); ok {
			return sc, groups, true
		}
	}
	return scenario{}, nil, false
}

func (s *scenario) check() error {
	if s.Name == "" {
		return errors.New("name: every scenario needs one")
	}
	groups, err := s.Match.compile()
	if err != nil {
		return fmt.Errorf("match: %w", err)
	}
	if len(s.Answers) == 0 {
		return errors.New("answers: there are none")
	}
	for i, a := range s.Answers {
		if err := a.check(groups); err != nil {
			return fmt.Errorf("answers[%d].%w", i, err)
		}
	}
	return nil
}

func (a answer) check(groups map[string]bool) error {
	ended := false
	for i, st := range a.Steps {
		if ended {
			return fmt.Errorf("steps[%d]: never reached, the step before it ends the answer", i)
		}
		if err := st.check(groups); err != nil {
			return fmt.Errorf("steps[%d]: %w", i, err)
		}
		ended = st.ends() && st.Attempt == 0
	}
	return nil
}

// match says which user messages a scenario answers. Exactly one field is
// set.
type match struct {
	Exact    *string `json:"exact"`
	Contains *string `json:"contains"`
	Regexp   *string `json:"regexp"`
	Default  bool    `json:"default"`

	re *regexp.Regexp
}

// compile checks m and returns the names of its groups.
func (m *match) compile() (map[string]bool, error) {
	set := 0
	for _, is := range []bool{m.Exact != nil, m.Contains != nil, m.Regexp != nil, m.Default} {
		if is {
			set++
		}
	}
	if set != 1 {
		return nil, errors.New("set exactly one of exact, contains, regexp and default")
	}
	if m.Regexp == nil {
		return nil, nil
	}
	re, err := regexp.Compile(*m.Regexp)
	if err != nil {
		return nil, fmt.Errorf("regexp: %w", err)
	}
	m.re = re
	groups := make(map[string]bool)
	for _, name := range re.SubexpNames() {
		if name != "" {
			groups[name] = true
		}
	}
	return groups, nil
}

func (m *match) matches(text string) (groups map[string]string, ok bool) {
	switch {
	case m.Exact != nil:
		return nil, strings.TrimSpace(text) == strings.TrimSpace(*m.Exact)
	case m.Contains != nil:
		return nil, strings.Contains(strings.ToLower(text), strings.ToLower(*m.Contains))
	case m.re == nil:
		return nil, m.Default
	}
	found := m.re.FindStringSubmatch(text)
	if found == nil {
		return nil, false
	}
	groups = make(map[string]string)
	for i, name := range m.re.SubexpNames() {
		if name != "" {
			groups[name] = found[i]
		}
	}
	return groups, true
}
