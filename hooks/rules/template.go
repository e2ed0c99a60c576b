package rules

import (
	"context"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// template is a text with expressions in it.
type template struct {
	// pieces are texts and expressions in turn, those that are there.
	pieces []piece
}

type piece struct {
	text string
	expr *program
}

const (
	open = "{{"
	shut = "}}"
)

// compiler makes programs of what stands in a rule.
type compiler struct {
	*source
	gate *gate
	rule *rule
}

// expression compiles what stands at offset of a scalar, counted in characters.
func (c *compiler) expression(n *yaml.Node, offset int, text string) *program {
	c.rule.expressions++
	if c.rule.expressions == maxExpressions+1 {
		c.ErrorAt(n, "the rule has more than %d expressions", maxExpressions)
	}
	if c.rule.expressions > maxExpressions {
		return nil
	}
	whole := []rune(n.Value)
	where := func(at int) yamlfile.Place { return c.Find(n, whole, offset+at) }
	p, bad := compile(c.gate, text)
	for _, b := range bad {
		c.ErrorIn(where(b.offset), "%s", b.text)
	}
	if p == nil {
		return nil
	}
	p.where, p.file = where, c.Name
	c.rule.impure = c.rule.impure || p.impure
	return p
}

// condition compiles an expression that is true or false.
func (c *compiler) condition(n *yaml.Node) *program {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		return c.expression(n, 0, strings.ToLower(n.Value))
	}
	text, ok := c.Text(n, "when")
	if !ok {
		return nil
	}
	p := c.expression(n, 0, text)
	if p != nil && !oneOf(p, types.BoolKind, types.DynKind) {
		c.ErrorAt(n, "when is of type %s; expected true or false", cel.FormatCELType(p.ast.OutputType()))
		return nil
	}
	return p
}

func oneOf(p *program, kinds ...types.Kind) bool {
	for _, k := range kinds {
		if p.ast.OutputType().Kind() == k {
			return true
		}
	}
	return false
}

// template compiles a text.
func (c *compiler) template(n *yaml.Node, what string) *template {
	text, ok := c.Text(n, what)
	if !ok {
		return nil
	}
	return c.templateOf(n, text)
}

func (c *compiler) templateOf(n *yaml.Node, text string) *template {
	t := &template{}
	rest, offset := text, 0
	step := func(bytes int) string {
		s := rest[:bytes]
		rest, offset = rest[bytes:], offset+len([]rune(s))
		return s
	}
	for rest != "" {
		begin := strings.Index(rest, open)
		if begin < 0 {
			t.pieces = append(t.pieces, piece{text: step(len(rest))})
			break
		}
		if begin > 0 {
			t.pieces = append(t.pieces, piece{text: step(begin)})
		}
		at := offset
		step(len(open))
		end := closing(rest)
		if end < 0 {
			c.ErrorIn(c.Find(n, []rune(n.Value), at), "the expression that begins with {{ has no }}")
			return nil
		}
		from := offset
		source := step(end)
		step(len(shut))
		p := c.expression(n, from, source)
		if p == nil {
			return nil
		}
		if !oneOf(p, types.BoolKind, types.DynKind, types.StringKind, types.IntKind, types.UintKind, types.DoubleKind,
			types.NullTypeKind, types.TimestampKind, types.DurationKind, types.ListKind, types.MapKind) {
			c.ErrorIn(p.where(0), "a value of type %s cannot stand in a text", cel.FormatCELType(p.ast.OutputType()))
			return nil
		}
		t.pieces = append(t.pieces, piece{expr: p})
	}
	return t
}

// closing is where the expression that text begins with ends: at the first }}
// that closes no brace of its own and stands in no text. It is -1 if there is
// none.
func closing(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				if strings.HasPrefix(text[i:], shut) {
					return i
				}
				return -1
			}
			depth--
		case '\'', '"':
			n := quoted(text[i:], i > 0 && (text[i-1] == 'r' || text[i-1] == 'R'))
			if n < 0 {
				return -1
			}
			i += n - 1
		}
	}
	return -1
}

// quoted is how long the text in quotes is that begins here, -1 if it does not
// end.
func quoted(text string, raw bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && !raw:
			i++
		case text[i] == text[0]:
			return i + 1
		}
	}
	return -1
}

// eval is the text with what its expressions come to, at most limit bytes.
func (t *template) eval(ctx context.Context, v *vars, limit int) (string, error) {
	if len(t.pieces) == 1 && t.pieces[0].expr == nil {
		return t.pieces[0].text, nil
	}
	var b strings.Builder
	for _, p := range t.pieces {
		s := p.text
		if p.expr != nil {
			out, err := p.expr.eval(ctx, v)
			if err != nil {
				return "", err
			}
			if s, err = textOf(out, limit); err != nil {
				return "", p.expr.fail(err)
			}
		}
		if b.Len()+len(s) > limit {
			return "", errLong
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// fail puts the place of the expression before what is wrong with its value.
func (p *program) fail(err error) error {
	at := p.where(0)
	return fmt.Errorf("%s:%d:%d: %w", p.file, at.Line, at.Column, err)
}

// mould is JSON in which texts have expressions.
type mould struct {
	// fixed is a scalar without any.
	fixed   value
	text    *template
	members []mouldMember
	object  bool
	array   []*mould
	isArray bool
}

type mouldMember struct {
	name string
	of   *mould
}

// mould compiles a node. It returns nil if something is wrong with it.
func (c *compiler) mould(n *yaml.Node) *mould {
	ok := true
	if n.Kind == yaml.MappingNode {
		m := &mould{object: true}
		for i := 0; i < len(n.Content); i += 2 {
			of := c.mould(n.Content[i+1])
			ok = ok && of != nil
			m.members = append(m.members, mouldMember{n.Content[i].Value, of})
		}
		return keep(m, ok)
	}
	if n.Kind == yaml.SequenceNode {
		m := &mould{isArray: true}
		for _, item := range n.Content {
			of := c.mould(item)
			ok = ok && of != nil
			m.array = append(m.array, of)
		}
		return keep(m, ok)
	}
	if yamlfile.IsText(n) && strings.Contains(n.Value, open) {
		t := c.template(n, "the value")
		return keep(&mould{text: t}, t != nil)
	}
	v, ok := c.literal(n)
	return keep(&mould{fixed: v}, ok)
}

func keep[T any](v *T, ok bool) *T {
	if !ok {
		return nil
	}
	return v
}

// eval is the JSON. A text that is one expression and nothing else is what that
// comes to, with its type.
func (m *mould) eval(ctx context.Context, v *vars) (value, error) {
	switch {
	case m.text != nil && len(m.text.pieces) == 1:
		p := m.text.pieces[0].expr
		out, err := p.eval(ctx, v)
		if err != nil {
			return value{}, err
		}
		j, err := jsonOf(out)
		if err != nil {
			return value{}, p.fail(err)
		}
		return j, nil
	case m.text != nil:
		s, err := m.text.eval(ctx, v, maxOutputBytes)
		return textValue(s), err
	case m.object:
		o := &object{}
		for _, one := range m.members {
			j, err := one.of.eval(ctx, v)
			if err != nil {
				return value{}, err
			}
			o.members = append(o.members, member{one.name, j})
		}
		return value{object: o}, nil
	case m.isArray:
		out := value{isArray: true}
		for _, one := range m.array {
			j, err := one.eval(ctx, v)
			if err != nil {
				return value{}, err
			}
			out.array = append(out.array, j)
		}
		return out, nil
	}
	return m.fixed, nil
}
