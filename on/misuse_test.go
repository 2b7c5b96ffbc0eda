package on_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What a kind of handler does not take does not compile, and the compiler says so at
// the option and with its name.
func TestMisuseDoesNotCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	const file = "testdata/misuse/misuse.go"
	command := exec.Command("go", "build", "-gcflags=-e", "./testdata/misuse")
	output, err := command.CombinedOutput()
	if err == nil {
		t.Fatal("it compiles")
	}
	complaints := map[string]string{} // by line
	for line := range strings.Lines(string(output)) {
		_, rest, ok := strings.Cut(line, "misuse.go:")
		if number, text, _ := strings.Cut(rest, ":"); ok {
			complaints[number] += text
		}
	}
	if len(complaints) == 0 {
		t.Fatalf("the compiler did not run: %s", output)
	}
	source, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	lines := bufio.NewScanner(source)
	for number := 1; lines.Scan(); number++ {
		call, want, wrong := strings.Cut(lines.Text(), " // ")
		got, complained := complaints[fmt.Sprint(number)]
		if wrong != complained || wrong && !strings.Contains(got, want) {
			t.Errorf("line %d: %s\n got: %s\nwant: %s", number, strings.TrimSpace(call), got, want)
		}
	}
}
