// Command webshots takes the pictures of loomweb for the documentation, of a page that
// is served already: light, dark, and on a phone. They are made small by pngquant if the
// machine has it. Run it at the top of the repository while a lab has work:
// go run ./internal/tools/webshots -url http://127.0.0.1:9480/
package main

import (
	"flag"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/testenv/browser"
)

// tool ends the program where a test would fail.
type tool struct{ ends []func() }

func (*tool) Helper()                   {}
func (t *tool) Cleanup(end func())      { t.ends = append(t.ends, end) }
func (*tool) Errorf(f string, a ...any) { log.Printf(f, a...) }
func (*tool) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }

func main() {
	log.SetFlags(0)
	url := flag.String("url", "http://127.0.0.1:9480/", "where the page is")
	out := flag.String("out", "docs/img", "where pictures go")
	wait := flag.Duration("wait", 3*time.Second, "look at the page this long before")
	do := flag.String("do", "", "JavaScript to run before the pictures, with app for the page")
	flag.Parse()
	t := &tool{}
	defer func() {
		for _, end := range slices.Backward(t.ends) {
			end()
		}
	}()
	p := browser.Open(t, 1440, 900)
	p.Go(*url)
	p.Wait(10*time.Second, `document.querySelector("#map .node")`)
	time.Sleep(*wait)
	if *do != "" {
		p.Eval(`import("./main.js").then(async ({app}) => { `+*do+` })`, nil)
		time.Sleep(time.Second)
	}
	for _, shot := range []struct {
		name          string
		width, height int64
		dark          bool
	}{
		{"loomweb-light", 1440, 900, false}, {"loomweb-dark", 1440, 900, true}, {"loomweb-phone", 390, 1500, false},
	} {
		p.Size(shot.width, shot.height)
		p.Dark(shot.dark)
		time.Sleep(1200 * time.Millisecond)
		file := filepath.Join(*out, shot.name+".png")
		p.Picture(file)
		if _, err := exec.LookPath("pngquant"); err == nil {
			if b, err := exec.Command("pngquant", "--force", "--ext", ".png", "--speed", "1", "96", file).CombinedOutput(); err != nil {
				log.Fatalf("pngquant: %v: %s", err, b)
			}
		}
		if st, err := os.Stat(file); err == nil {
			log.Printf("%s: %d kB", file, st.Size()/1000)
		}
	}
}
