// Package browser lets tests look at a page as a person does: in Debian's Chromium,
// without a screen. What the page writes to its console as an error fails the test.
package browser

import (
	"context"
	_ "embed" // axe
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
)

// timeout bounds a browser's life. Tests wait for less.
const timeout = 15 * time.Minute

// axeScript is axe-core, which finds what keeps people from using a page.
//
//go:embed axe/axe.min.js
var axeScript string

// TB is what a page needs of a test.
type TB interface {
	Helper()
	Cleanup(end func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Page is a tab of a browser of its own.
type Page struct {
	t   TB
	ctx context.Context

	mu     sync.Mutex
	errors []string
	urls   []string
}

// Open starts a browser that shows nothing yet. It ends with the test, which fails if the
// console has errors then.
func Open(t TB, width, height int64) *Page {
	t.Helper()
	path, err := exec.LookPath("chromium") // Debian's package of that name
	if err != nil {
		t.Fatalf("%v", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(int(width), int(height)),
		chromedp.Flag("enable-precise-memory-info", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("js-flags", "--expose-gc"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses root otherwise
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	p := &Page{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return // the test ends
			}
			p.heard(m)
		}
	}()
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatalf("the browser: %v", err)
	}
	p.Size(width, height)
	t.Cleanup(func() {
		for _, e := range p.Errors() {
			t.Errorf("the console says: %s", e)
		}
	})
	return p
}

// heard keeps what is an error.
func (p *Page) heard(m chromedp.ConsoleMessage) {
	if !m.IsException() && m.Type != "error" && m.Type != "assert" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors = append(p.errors, m.String()+" "+m.URL)
}

func (p *Page) listen(event any) {
	if e, ok := event.(*network.EventRequestWillBeSent); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.urls = append(p.urls, e.Request.URL)
	}
}

// Errors returns what the console says, and forgets it.
func (p *Page) Errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.errors
	p.errors = nil
	return e
}

// URLs returns what the page has asked for so far.
func (p *Page) URLs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.urls...)
}

// Do runs actions.
func (p *Page) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatalf("the browser: %v", err)
	}
}

// Go shows a URL.
func (p *Page) Go(url string) {
	p.t.Helper()
	p.Do(chromedp.Navigate(url))
}

// Dark makes the system's colours dark or light.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, media); err != nil {
		p.t.Fatalf("the browser: %v", err)
	}
}

// Size makes the window another one.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600}
	if _, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, size); err != nil {
		p.t.Fatalf("the browser: %v", err)
	}
}

// Eval runs an expression, waits for it if it is a promise, and stores what comes of it;
// into may be nil.
func (p *Page) Eval(expression string, into any) {
	p.t.Helper()
	raw, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("the browser: %.200s: %v", expression, err)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(raw, into); err != nil {
		p.t.Fatalf("%.200s gives %s: %v", expression, raw, err)
	}
}

// Wait waits until an expression is true, and returns how long that took. The test fails
// when it takes longer than within.
func (p *Page) Wait(within time.Duration, expression string) time.Duration {
	p.t.Helper()
	start := time.Now()
	for {
		var ok bool
		p.Eval("Boolean("+expression+")", &ok)
		took := time.Since(start)
		if ok {
			return took
		}
		if took > within {
			var now string
			p.Eval(`document.body.innerText.slice(0, 1500)`, &now)
			p.t.Fatalf("after %v it is not so that %s; console %q; the page says:\n%s", took, expression, p.Errors(), now)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// CPU returns the processor time that the browser has used so far, in all of its
// processes.
func (p *Page) CPU() (used time.Duration) {
	p.t.Helper()
	r, err := chromedp.CallBrowser(p.ctx, systeminfo.GetProcessInfo, struct{}{})
	if err != nil {
		p.t.Fatalf("the browser: %v", err)
	}
	for _, process := range r.ProcessInfo {
		used += time.Duration(process.CPUTime * float64(time.Second))
	}
	return used
}

// Picture saves what the window shows.
func (p *Page) Picture(file string) {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatalf("the browser: %v", err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		p.t.Fatalf("%v", err)
	}
}

// Violation is a finding of axe-core.
type Violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// Axe returns the serious and critical findings of axe-core.
func (p *Page) Axe() (found []Violation) {
	p.t.Helper()
	var all []Violation
	p.Eval(axeScript+"\n;0", nil)
	p.Eval(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`, &all)
	for _, v := range all {
		if v.Impact == "serious" || v.Impact == "critical" {
			found = append(found, v)
		}
	}
	return found
}

// String is a finding in a log.
func (v Violation) String() string {
	s := fmt.Sprintf("%s (%s): %s", v.ID, v.Impact, v.Help)
	for i, n := range v.Nodes {
		if i == 3 {
			break
		}
		s += "\n  " + n.HTML + "\n    " + strings.ReplaceAll(n.FailureSummary, "\n", "\n    ")
	}
	return s
}
