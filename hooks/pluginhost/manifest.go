package pluginhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// ManifestName is the file that makes a plugin of a directory.
const ManifestName = "plugin.yaml"

// Manifest is what a plugin's author says of it, and what it asks of its host.
type Manifest struct {
	// ID is the plugin's name: lower-case letters, digits, dots, dashes and
	// underscores, at most 64.
	ID string
	// Version is the author's own.
	Version string
	// Exec is the program, a path within the bundle with slashes.
	Exec string
	// Args are its arguments, without the program itself.
	Args []string
	// Env are the names of the variables of the host that it is handed, beside those
	// that every plugin gets. Those of agentd itself are none of them.
	Env []string
	// Protocol is the version of the protocol that it speaks.
	Protocol int
	// Memory bounds the data of each of its processes, in bytes; 0 does not.
	Memory int64
	// Config is one JSON object, which the plugin is handed as it is.
	Config json.RawMessage
}

// manifestFile is how it is written.
type manifestFile struct {
	ID       string     `yaml:"id,required"`
	Version  string     `yaml:"version,required"`
	Exec     string     `yaml:"exec,required"`
	Args     []string   `yaml:"args"`
	Env      []string   `yaml:"env"`
	Protocol int        `yaml:"protocol,required,positive"`
	Memory   bytesize   `yaml:"memory"`
	Config   jsonObject `yaml:"config"`
}

var (
	idPattern       = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// ownVariables begin with these: what is in them is agentd's own, secrets too, or
// part of the handshake.
var ownVariables = []string{"AGENTD_", "PLUGIN_"}

// readManifest reads the manifest at path; errors call it name. All that is wrong
// with it is in the error.
func readManifest(at, name string) (Manifest, error) {
	text, err := yamlfile.Read(at)
	if err != nil {
		return Manifest{}, err
	}
	problems := &yamlfile.Problems{}
	f := yamlfile.Parse(name, text, "a mapping with the keys id, version, exec and protocol", problems)
	if f == nil {
		return Manifest{}, problems.Err()
	}
	var file manifestFile
	if !f.Decode(f.Root, "the manifest", &file) {
		return Manifest{}, problems.Err()
	}
	file.check(f)
	m := Manifest{
		ID: file.ID, Version: file.Version, Exec: path.Clean(file.Exec), Args: file.Args, Env: file.Env,
		Protocol: file.Protocol, Memory: int64(file.Memory), Config: file.Config.text,
	}
	if m.Config == nil {
		m.Config = json.RawMessage("{}")
	}
	return m, problems.Err()
}

// check notes what a type alone does not tell.
func (m manifestFile) check(f *yamlfile.File) {
	at := func(key string) *yaml.Node { return yamlfile.Key(f.Root, key) }
	if !idPattern.MatchString(m.ID) {
		f.ErrorAt(at("id"), "id is %q; expected 1 to 64 lower-case letters, digits, dots, dashes and underscores", yamlfile.Cut(m.ID, yamlfile.MaxIDBytes))
	}
	if len(m.Version) > yamlfile.MaxIDBytes || strings.ContainsFunc(m.Version, func(r rune) bool { return !strconv.IsPrint(r) }) {
		f.ErrorAt(at("version"), "version is no text of at most %d printable bytes", yamlfile.MaxIDBytes)
	}
	if !filepath.IsLocal(filepath.FromSlash(m.Exec)) || path.Clean(m.Exec) == "." {
		f.ErrorAt(at("exec"), "exec is %q; expected a path within the plugin's directory", yamlfile.Cut(m.Exec, 100))
	}
	if m.Protocol != wire.ProtocolVersion {
		f.ErrorAt(at("protocol"), "protocol is %d; this agentd speaks %d", m.Protocol, wire.ProtocolVersion)
	}
	if slices.ContainsFunc(append(m.Args, m.Exec), func(s string) bool { return strings.ContainsRune(s, 0) }) {
		f.ErrorAt(f.Root, "exec and args cannot have a NUL")
	}
	for _, name := range m.Env {
		own := slices.ContainsFunc(ownVariables, func(prefix string) bool { return strings.HasPrefix(strings.ToUpper(name), prefix) })
		switch {
		case !variablePattern.MatchString(name):
			f.ErrorAt(at("env"), "env: %q is not the name of a variable", yamlfile.Cut(name, 100))
		case own:
			f.ErrorAt(at("env"), "env: %s is not for plugins", yamlfile.Cut(name, 100))
		}
	}
}

// bytesize is written as a number with a unit.
type bytesize int64

// minMemory is less than any plugin starts with.
const minMemory = 8 << 20

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *bytesize) UnmarshalText(text []byte) error {
	bad := fmt.Errorf("expected a size from %dMiB, such as 512MiB or 2GiB", minMemory>>20)
	for unit, size := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30} {
		number, ok := strings.CutSuffix(string(text), unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/size || n*size < minMemory {
			return bad
		}
		*b = bytesize(n * size)
		return nil
	}
	return bad
}

// jsonObject is a mapping as JSON.
type jsonObject struct{ text json.RawMessage }

var _ yamlfile.Value = (*jsonObject)(nil)

// ReadYAML implements yamlfile.Value.
func (o *jsonObject) ReadYAML(f *yamlfile.File, n *yaml.Node, what string) {
	if n.Kind != yaml.MappingNode {
		f.ErrorAt(n, "expected %s as a mapping, not %s", what, yamlfile.KindOf(n))
		return
	}
	var out bytes.Buffer
	if err := writeJSON(&out, n); err != nil {
		f.ErrorAt(n, "%s: %v", what, err)
		return
	}
	o.text = out.Bytes()
}

var errNotJSON = errors.New("JSON has no such value")

// writeJSON writes a node in the order of the file, numbers with the digits that
// they are written with.
func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		step, open, end := 1, byte('['), byte(']')
		if n.Kind == yaml.MappingNode {
			step, open, end = 2, '{', '}'
		}
		out.WriteByte(open)
		for i := 0; i < len(n.Content); i += step {
			if i > 0 {
				out.WriteByte(',')
			}
			if step == 2 {
				writeText(out, n.Content[i].Value)
				out.WriteByte(':')
			}
			if err := writeJSON(out, n.Content[i+step-1]); err != nil {
				return err
			}
		}
		out.WriteByte(end)
		return nil
	case yaml.ScalarNode:
	default:
		return errNotJSON
	}
	switch {
	case yamlfile.IsText(n):
		writeText(out, n.Value)
	case n.Tag == "!!null":
		out.WriteString("null")
	case n.Tag == "!!bool":
		out.WriteString(strings.ToLower(n.Value))
	case json.Valid([]byte(n.Value)):
		out.WriteString(n.Value)
	default:
		return fmt.Errorf("%w: %s", errNotJSON, yamlfile.Cut(n.Value, 40))
	}
	return nil
}

func writeText(out *bytes.Buffer, s string) {
	text, _ := json.Marshal(s) // a text has no error
	out.Write(text)
}
