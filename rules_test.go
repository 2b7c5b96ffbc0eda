package kopf_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const conformanceFile = "docs/conformance.md"

// Every rule of Kopf that docs/conformance.md lists is named by a test, or its table
// says why there is none. With -v it prints which tests name which rule.
func TestEveryRuleIsTested(t *testing.T) {
	text, err := os.ReadFile(conformanceFile)
	if err != nil {
		t.Fatal(err)
	}
	rules, mistakes := parseConformance(string(text))
	tests := testNames{}
	if err := tests.addModule("."); err != nil {
		t.Fatal(err)
	}
	named := tests.byRule(rules.families())
	for _, mistake := range append(mistakes, rules.check(named)...) {
		t.Error(mistake)
	}
	if testing.Verbose() {
		for _, id := range slices.SortedFunc(maps.Keys(named), compareRules) {
			t.Logf("%-7s %s", id, strings.Join(named[id], "\n        "))
		}
	}
}

// conformance is what docs/conformance.md says.
type conformance struct {
	listed  map[string]bool   // all rules, in the form CHG-4 or T001
	verdict map[string]string // of the rules in the second table: different or moot
}

var (
	ruleForm  = regexp.MustCompile(`^([A-Z]+)(-?)([0-9]+)$`)
	tableRow  = regexp.MustCompile(`^\|([^|]+)\|([^|]+)\|(?:([^|]+)\|)?$`)
	headings  = map[string]string{"## Rules": "rules", "## Different or moot": "differences"}
	separator = regexp.MustCompile(`^\|[-| ]+\|$`)
)

// parseConformance reads the two tables: ranges of rules, and rules with a verdict
// and a reason.
func parseConformance(text string) (c conformance, mistakes []error) {
	c = conformance{listed: map[string]bool{}, verdict: map[string]string{}}
	section, header := "", false
	for number, line := range strings.Split(text, "\n") {
		complain := func(format string, args ...any) {
			mistakes = append(mistakes, fmt.Errorf("%s:%d: %w", conformanceFile, number+1, fmt.Errorf(format, args...)))
		}
		if strings.HasPrefix(line, "## ") {
			section, header = headings[line], true
		}
		cells := tableRow.FindStringSubmatch(line)
		switch {
		case section == "" || cells == nil || separator.MatchString(line):
			continue
		case header: // the first row of a table
			header = false
			continue
		}
		for part := range strings.SplitSeq(cells[1], ",") {
			ids, err := expandRules(strings.TrimSpace(part))
			if err != nil {
				complain("%w", err)
			}
			for _, id := range ids {
				verdict := strings.TrimSpace(cells[2])
				switch {
				case section == "rules" && c.listed[id]:
					complain("%s is listed twice", id)
				case section == "rules":
					c.listed[id] = true
				case c.verdict[id] != "":
					complain("%s has two verdicts", id)
				case verdict != "different" && verdict != "moot":
					complain("the verdict on %s is %q, not different or moot", id, verdict)
				case strings.TrimSpace(cells[3]) == "":
					complain("%s has no reason", id)
				default:
					c.verdict[id] = verdict
				}
			}
		}
	}
	return c, mistakes
}

// expandRules returns the rules of a range such as CHG-1…CHG-8, or of one rule.
func expandRules(text string) ([]string, error) {
	from, to, isRange := strings.Cut(text, "…")
	if !isRange {
		to = from
	}
	first, last := ruleForm.FindStringSubmatch(from), ruleForm.FindStringSubmatch(to)
	if first == nil || last == nil || first[1] != last[1] || len(first[3]) > len(last[3]) {
		return nil, fmt.Errorf("%q is neither a rule such as CHG-1 nor a range such as CHG-1…CHG-8", text)
	}
	low, _ := strconv.Atoi(first[3]) // digits, by the form
	high, _ := strconv.Atoi(last[3])
	var ids []string
	for n := low; n <= high; n++ {
		ids = append(ids, fmt.Sprintf("%s%s%0*d", first[1], first[2], len(first[3]), n))
	}
	return ids, nil
}

// families are the letters before the numbers.
func (c conformance) families() []string {
	found := map[string]bool{}
	for id := range c.listed {
		found[ruleForm.FindStringSubmatch(id)[1]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// check compares the rules with those that tests name.
func (c conformance) check(named map[string][]string) (mistakes []error) {
	complain := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	for _, id := range slices.SortedFunc(maps.Keys(c.listed), compareRules) {
		switch verdict := c.verdict[id]; {
		case verdict == "moot" && len(named[id]) > 0:
			complain("%s is said to be moot, but is named by %s: take it out of the table of %s", id, named[id][0], conformanceFile)
		case verdict == "different" && len(named[id]) == 0:
			complain("%s is said to be different, but no test shows how: name it in one", id)
		case verdict == "" && len(named[id]) == 0:
			complain("%s is not named by any test: name it in one, or say in %s why there is none", id, conformanceFile)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.verdict), compareRules) {
		if !c.listed[id] {
			complain("%s has a verdict, but is not listed among the rules of %s", id, conformanceFile)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(named), compareRules) {
		if !c.listed[id] {
			complain("%s is named by %s, but %s does not list it", id, named[id][0], conformanceFile)
		}
	}
	return mistakes
}

func compareRules(a, b string) int {
	x, y := ruleForm.FindStringSubmatch(a), ruleForm.FindStringSubmatch(b)
	if x[1] != y[1] {
		return strings.Compare(x[1], y[1])
	}
	m, _ := strconv.Atoi(x[3])
	n, _ := strconv.Atoi(y[3])
	return m - n
}

// testNames are the names of tests, of their subtests and table entries, and the
// texts of Ginkgo, each with the place where it stands.
type testNames []struct{ text, place string }

// addModule adds what is in a module, without those nested in it.
func (n *testNames) addModule(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			name := entry.Name()
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (err == nil || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		if built, err := build.Default.MatchFile(filepath.Split(path)); !built || err != nil {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return n.addFile(path, source)
	})
}

func (n *testNames) addFile(path string, source []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	add := func(text string, at token.Pos) {
		*n = append(*n, struct{ text, place string }{text, files.Position(at).String()})
	}
	addLiterals := func(within ast.Node) {
		ast.Inspect(within, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					add(text, literal.Pos())
				}
			}
			return true
		})
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if skips(node) {
				return false
			}
			if runs.MatchString(node.Name.Name) {
				add(node.Name.Name, node.Pos())
			}
		case *ast.CallExpr:
			switch name := called(node); {
			case pending.MatchString(name):
				return false
			case specs.MatchString(name) && len(node.Args) > 0:
				addLiterals(node.Args[0])
			}
		case *ast.CompositeLit:
			for _, element := range node.Elts {
				if title := titleOf(element); title != nil {
					addLiterals(title)
				}
			}
		}
		return true
	})
	return nil
}

var (
	runs    = regexp.MustCompile(`^(Test|Fuzz|Example)`) // benchmarks are not run with the tests
	specs   = regexp.MustCompile(`^(Run|Describe|Context|When|It|Specify|DescribeTable|Entry)$`)
	pending = regexp.MustCompile(`^[PX](Describe|Context|When|It|Specify|DescribeTable|Entry)$`)
)

// skips tells of a test that is always skipped.
func skips(function *ast.FuncDecl) bool {
	if function.Body == nil {
		return false
	}
	return slices.ContainsFunc(function.Body.List, func(statement ast.Stmt) bool {
		expression, _ := statement.(*ast.ExprStmt)
		if expression == nil {
			return false
		}
		call, _ := expression.X.(*ast.CallExpr)
		return call != nil && strings.HasPrefix(called(call), "Skip")
	})
}

func called(call *ast.CallExpr) string {
	switch function := call.Fun.(type) {
	case *ast.Ident:
		return function.Name
	case *ast.SelectorExpr:
		return function.Sel.Name
	}
	return ""
}

// titleOf returns what names an entry of a table: the key of a map entry, the first
// field of a struct, or its field name or rule.
func titleOf(element ast.Expr) ast.Node {
	if entry, ok := element.(*ast.KeyValueExpr); ok {
		switch key := entry.Key.(type) {
		case *ast.BasicLit:
			switch entry.Value.(type) {
			case *ast.CompositeLit, *ast.FuncLit:
				return key
			}
		case *ast.Ident:
			if key.Name == "name" || key.Name == "rule" {
				return entry.Value
			}
		}
		return nil
	}
	entry, ok := element.(*ast.CompositeLit)
	if !ok || entry.Type != nil || len(entry.Elts) < 2 {
		return nil
	}
	if title, ok := entry.Elts[0].(*ast.BasicLit); ok {
		return title
	}
	return nil
}

// underscore is what a space is elsewhere, in names of functions.
var underscore = regexp.MustCompile(`_([A-Z])`)

// byRule returns where each rule of the families is named.
func (n testNames) byRule(families []string) map[string][]string {
	form := regexp.MustCompile(`(?:^|[^A-Za-z0-9])(` + strings.Join(families, "|") + `)([-_]?)([0-9]+)\b`)
	found := map[string][]string{}
	for _, name := range n {
		for _, match := range form.FindAllStringSubmatch(underscore.ReplaceAllString(name.text, " $1"), -1) {
			id := match[1] + match[3]
			if len(match[1]) > 1 {
				id = match[1] + "-" + match[3]
			}
			entry := fmt.Sprintf("%s: %s", name.place, name.text)
			if !slices.Contains(found[id], entry) {
				found[id] = append(found[id], entry)
			}
		}
	}
	return found
}

func TestNamesOfTests(t *testing.T) {
	const source = `package p
func TestA_CHG1_T001(t *testing.T) { t.Run("FLT-8 and FLT-9, X15", nil); t.Run(name+" (T002)", nil); note("FLT-1") }
func TestB(t *testing.T) {
	for _, c := range []struct{ name, text string }{{"PRG-1 first", "PRG-2"}, {name: "PRG-3", text: "PRG-4"}, {text: "PRG-5"}, {rule: "PRG-6: x"}} {}
	for name, c := range map[string]struct{ x int }{"PRG-7": {1}, "PRG-8": {1}} {}
	for name, f := range map[string]func(){"PRG-9": func() { t.Log("PRG-10") }} {}
	_ = map[string]string{"OUT-1": "OUT-2"}
	_ = []string{"OUT-3", "OUT-4"}
	_ = t.Name() == "OUT-5" // OUT-6
}
func TestSkipped_CHG2(t *testing.T) { t.Skip("later"); t.Run("CHG-3", nil) }
func BenchmarkX_CHG4(b *testing.B) {}
func helper_CHG5() {}
func FuzzX_CHG6(f *testing.F) { f.Add("CHG-7") }
var _ = Describe("SUB-1", func() {
	It("SUB-2 works", Serial, func() { By("SUB-3") })
	PIt("SUB-4 is pending", func() {})
	DescribeTable("SUB-5", f, Entry("SUB-6", "SUB-7"), Entry(fmt.Sprintf("SUB-8 %d", 1)), PEntry("SUB-9"))
	PDescribe("SUB-10", func() { It("SUB-11", func() {}) })
})
`
	var names testNames
	if err := names.addFile("p_test.go", []byte(source)); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(slices.SortedFunc(maps.Keys(names.byRule([]string{"CHG", "FLT", "PRG", "OUT", "SUB", "T", "X"})), compareRules), " ")
	want := "CHG-1 CHG-6 FLT-8 FLT-9 PRG-1 PRG-3 PRG-6 PRG-7 PRG-8 PRG-9 SUB-1 SUB-2 SUB-5 SUB-6 SUB-8 T001 T002 X15"
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	for name, rules := range map[string]string{
		"CHG-4, CHG_5 and TestX_CHG6_T070": "CHG-4 CHG-5 CHG-6 T070",
		"XCHG-4 CHG-x CHG T1x AT001 BCHG4": "",
		"(CHG-4) CHG-5: x CHG-6.":          "CHG-4 CHG-5 CHG-6",
	} {
		found := testNames{{text: name}}.byRule([]string{"CHG", "T"})
		if got := strings.Join(slices.SortedFunc(maps.Keys(found), compareRules), " "); got != rules {
			t.Errorf("%q names %q", name, got)
		}
	}
}

func TestConformanceIsChecked(t *testing.T) {
	const table = "# x\n| CHG-99 | in no section |\n## Rules\n| rules | about |\n|---|---|\n"
	const differences = "## Different or moot\n| rule | verdict | reason |\n|---|---|---|\n"
	for name, c := range map[string]struct {
		text, tests string
		mistakes    []string
	}{
		"all are tested":    {table + "| CHG-1…CHG-2, T009…T010 | x |\n", "CHG-1 CHG-2 T009 T010", nil},
		"one is not":        {table + "| CHG-1…CHG-2 | x |\n", "CHG-2", []string{"CHG-1 is not named by any test"}},
		"one is unknown":    {table + "| CHG-1 | x |\n", "CHG-1 CHG-3", []string{"CHG-3 is named by"}},
		"listed twice":      {table + "| CHG-1…CHG-2 | x |\n| CHG-2 | y |\n", "CHG-1 CHG-2", []string{"CHG-2 is listed twice"}},
		"no range":          {table + "| CHG-1…FLT-2 | x |\n| all | x |\n", "", []string{`"CHG-1…FLT-2" is neither`, `"all" is neither`}},
		"moot":              {table + "| CHG-1 | x |\n" + differences + "| CHG-1 | moot | why |\n", "", nil},
		"moot, but tested":  {table + "| CHG-1 | x |\n" + differences + "| CHG-1 | moot | why |\n", "CHG-1", []string{"CHG-1 is said to be moot, but is named by"}},
		"different":         {table + "| CHG-1 | x |\n" + differences + "| CHG-1 | different | why |\n", "CHG-1", nil},
		"different, unseen": {table + "| CHG-1 | x |\n" + differences + "| CHG-1 | different | why |\n", "", []string{"CHG-1 is said to be different, but no test"}},
		"no such verdict":   {table + "| CHG-1 | x |\n" + differences + "| CHG-1 | later | why |\n", "CHG-1", []string{`the verdict on CHG-1 is "later"`}},
		"no reason":         {table + "| CHG-1 | x |\n" + differences + "| CHG-1 | moot | |\n", "CHG-1", []string{"CHG-1 has no reason"}},
		"two verdicts": {table + "| CHG-1 | x |\n" + differences + "| CHG-1 | moot | why |\n| CHG-1 | different | why |\n", "",
			[]string{"CHG-1 has two verdicts"}},
		"verdict on something else": {table + "| CHG-1 | x |\n" + differences + "| CHG-3 | moot | why |\n", "CHG-1",
			[]string{"CHG-3 has a verdict, but is not listed"}},
	} {
		t.Run(name, func(t *testing.T) {
			rules, mistakes := parseConformance(c.text)
			named := testNames{{text: c.tests}}.byRule([]string{"CHG", "T"})
			mistakes = append(mistakes, rules.check(named)...)
			if len(mistakes) != len(c.mistakes) {
				t.Fatalf("got %q", mistakes)
			}
			for i, want := range c.mistakes {
				if !strings.Contains(mistakes[i].Error(), want) {
					t.Errorf("got %q, want %q", mistakes[i], want)
				}
			}
		})
	}
}
