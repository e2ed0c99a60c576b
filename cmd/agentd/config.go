package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/rules"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// configFlags name the config file.
type configFlags struct {
	Config string `env:"AGENTD_CONFIG" placeholder:"FILE" help:"Read hooks, rules, observers and what is said of plugins from this file; without it from agentd.yaml in the current directory, if that is there."`
}

// defaultConfig is read if nobody names another.
const defaultConfig = "agentd.yaml"

// path returns that of the config file, "" for none.
func (f configFlags) path() string {
	if f.Config != "" {
		return f.Config
	}
	// One that is there and cannot be read is not passed over.
	if _, err := os.Lstat(defaultConfig); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return defaultConfig
}

// hookConfig is where the hooks of a process come from. They stand in this
// order.
type hookConfig struct {
	flags []part
	// path is that of the config file, "" for none.
	path  string
	extra []part
	// observers are asked behind those of the file.
	observers []stream.Registration
	// unasked says that nobody will be asked, so that secrets need not be there.
	unasked bool
	// counters count for guards; nil is a process without a database.
	counters *counters
}

// configured is what flags and the files came to. It is not changed once it is
// made.
type configured struct {
	// parts are the hooks in the order of registration.
	parts []part
	// hooks are the parts as one.
	hooks hooks.Hooks
	rules *rules.Set
	// observed are the observers in the order in which they are asked, observers
	// what they are joined to.
	observed  []observerEntry
	observers *stream.Set
	// plugins are what the config file says of plugins.
	plugins pluginSettings
	// files are those that were read, the config file first.
	files []configFile
}

// set is all of them, with the digest that decisions name.
func (c *configured) set() hooks.HookSet { return c.hooks.Set().With(c.observers.Hooks()...) }

// with are the hooks and the observers with those of plugins behind them, and the set
// that both are. An error says that the observers cannot be asked together.
func (c *configured) with(p heldPlugins) (hooks.Hooks, *stream.Set, hooks.HookSet, error) {
	asked, observers := c.hooks.Then(p.hooks), c.observers
	if len(p.observers) > 0 {
		var all []stream.Registration
		for _, o := range c.observed {
			all = append(all, o.Registration)
		}
		var err error
		if observers, err = stream.NewSet(append(all, p.observers...)...); err != nil {
			return hooks.Hooks{}, nil, hooks.HookSet{}, err
		}
	}
	return asked, observers, asked.Set().With(observers.Hooks()...), nil
}

// part is some of the hooks, and where they were asked for.
type part struct {
	hooks hooks.Hooks
	place func(hooks.Registration) string
}

// placed is a part whose hooks all come from one place.
func placed(h hooks.Hooks, place string) part {
	return part{hooks: h, place: func(hooks.Registration) string { return place }}
}

// configFile is a file as it was when it was read.
type configFile struct {
	Name string
	// SHA256 is that of the content in hex, "" if there was none to read.
	SHA256   string
	Modified time.Time
	// problem is why it could not be read.
	problem string
}

// read reads the files and makes the hooks. An error that is wrong with a file is
// an [*yamlfile.Errors]; what is returned then has the files that were read, and
// no hooks.
func (c hookConfig) read() (*configured, error) {
	r := &configReader{out: &configured{parts: slices.Clip(c.flags)}, rules: rules.NewReader(), ids: map[string]string{}, counters: c.counters, unasked: c.unasked}
	if r.counters == nil {
		r.counters = &counters{}
	}
	if c.path != "" {
		r.config(c.path)
	}
	for _, reg := range c.observers {
		r.out.observed = append(r.out.observed, observerEntry{Registration: reg, place: "extraObservers"})
	}
	r.observe()
	if err := r.problems.Err(); err != nil {
		return &configured{files: r.out.files}, err
	}
	out := r.out
	out.parts = append(out.parts[:len(out.parts):len(out.parts)], c.extra...)
	out.rules, out.hooks = r.rules.Set(), compose(out.parts)
	return out, nil
}

// compose joins parts in their order. Halves of halves, so that a chain of many
// is not nested as deep.
func compose(parts []part) hooks.Hooks {
	switch n := len(parts); n {
	case 0:
		return hooks.Hooks{}
	case 1:
		return parts[0].hooks
	default:
		return compose(parts[:n/2]).Then(compose(parts[n/2:]))
	}
}

// configReader reads one state of the config file and the files that it names.
type configReader struct {
	problems yamlfile.Problems
	rules    *rules.Reader
	file     *yamlfile.File // the config file
	out      *configured
	ids      map[string]string // the place of each hook by gate and id
	counters *counters
	unasked  bool
}

func (r *configReader) config(path string) {
	text, err := r.content(path)
	if err != nil {
		r.problems.Add(path, yamlfile.Place{}, "the file cannot be read: %s", unreadable(err))
		return
	}
	r.file = yamlfile.Parse(path, text, "a mapping with keys such as hooks and rules", &r.problems)
	if r.file == nil {
		return
	}
	keys := r.rules.Keys(r.file)
	list := keys["rules"]
	keys["rules"] = func(n *yaml.Node) {
		list(n)
		r.add(n, r.rulesIn(path))
	}
	keys["hooks"], keys["observers"], keys["plugins"] = r.hooks, r.observers, r.plugins
	r.file.Fields(r.file.Root, "the config file", keys)
}

// content reads a file and remembers how it was.
func (r *configReader) content(path string) ([]byte, error) {
	f, text, err := readConfigFile(path)
	r.out.files = append(r.out.files, f)
	return text, err
}

func readConfigFile(path string) (configFile, []byte, error) {
	f := configFile{Name: path}
	text, err := yamlfile.Read(path)
	if err != nil {
		f.problem = unreadable(err)
		return f, nil, err
	}
	if info, err := os.Stat(path); err == nil {
		f.Modified = info.ModTime()
	}
	sum := sha256.Sum256(text)
	f.SHA256 = hex.EncodeToString(sum[:])
	return f, text, nil
}

// unreadable is an error about a file without the file's name.
func unreadable(err error) string {
	var about *fs.PathError
	if errors.As(err, &about) {
		return about.Err.Error()
	}
	return err.Error()
}

// beside is where a file is that the config file names.
func (r *configReader) beside(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.file.Name), name)
}

// rulesIn is the part of the rules that stand in a file which was read.
func (r *configReader) rulesIn(path string) part {
	set := r.rules.Set()
	places := map[string]string{}
	for _, one := range set.Rules() {
		places[one.ID] = fmt.Sprintf("%s:%d", one.File, one.Line)
	}
	return part{hooks: set.HooksIn(path), place: func(r hooks.Registration) string { return places[r.ID] }}
}

// add registers hooks behind the others. It notes at n if one has the name of
// another at the same gate: the ledger could not tell them apart.
func (r *configReader) add(n *yaml.Node, p part) {
	for _, reg := range p.hooks.Set().Hooks {
		key := string(reg.Gate) + "/" + reg.ID
		if first := r.ids[key]; first != "" {
			r.file.ErrorAt(n, "the id %q of the hook at %s is that of the hook at %s; give one of them another id", reg.ID, p.place(reg), first)
		}
		r.ids[key] = p.place(reg)
	}
	r.out.parts = append(r.out.parts, p)
}
