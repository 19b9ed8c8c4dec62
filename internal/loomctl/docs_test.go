package loomctl

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command that the page shows exists, with its flags, and the page shows all that
// there are, but those that cobra adds.
func TestPageShowsTheCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/loomctl.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^    \$ sudo bin/loomctl (.+)$`).FindAllStringSubmatch(string(text), -1) {
		root := Command(io.Discard)
		c, args, err := root.Traverse(strings.Fields(m[1]))
		if err == nil {
			err = c.ParseFlags(args)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil || !c.Runnable() {
			t.Errorf("loomctl %s: %v", m[1], err)
			continue
		}
		shown[strings.TrimPrefix(c.CommandPath(), "loomctl ")] = true
	}
	if len(shown) < 10 {
		t.Errorf("the page shows %d commands", len(shown))
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "loomctl ")
		if c.Runnable() && !c.Hidden && !shown[name] && !strings.Contains(string(text), "`loomctl "+name) {
			t.Errorf("the page does not show loomctl %s", name)
		}
		for _, x := range c.Commands() {
			walk(x)
		}
	}
	walk(Command(io.Discard))
}
