package workload

import (
	"embed"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

//go:embed data/*.csv
var data embed.FS

// Builtin returns a shipped distribution by name, for instance "web-search";
// each file under data/ names its source.
func Builtin(name string) (*CDF, error) {
	f, err := data.Open("data/" + name + ".csv")
	if err != nil {
		return nil, fmt.Errorf("no flow-size distribution is called %q: there are %s", name, strings.Join(Names(), ", "))
	}
	defer f.Close()
	c, err := ReadCDF(f)
	if err != nil {
		return nil, fmt.Errorf("distribution %s: %w", name, err)
	}
	return c, nil
}

// Open returns the distribution in a file whose name ends in .csv, or else the shipped
// one of that name. A relative file name starts from dir.
func Open(name, dir string) (*CDF, error) {
	if !strings.HasSuffix(name, ".csv") {
		return Builtin(name)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := ReadCDF(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// Names lists the shipped distributions in alphabetical order.
func Names() []string {
	entries, err := data.ReadDir("data")
	if err != nil {
		panic(err) // the directory is part of the binary
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".csv"))
	}
	return names
}

// NewRand returns a generator for one stream of a workload: the same seed and
// stream give the same sequence on every machine.
func NewRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// FlowRate is the number of flows per second that offer load percent of
// capacity bits per second with flows of mean bytes.
func FlowRate(load, capacity, mean float64) float64 {
	return load / 100 * capacity / (8 * mean)
}

// Poisson is a Poisson process: independent, exponentially distributed gaps. It
// is owned by one goroutine.
type Poisson struct {
	rate float64 // events per second
	rand *rand.Rand
}

// NewPoisson returns a process of rate events per second, which must be above 0.
func NewPoisson(rate float64, r *rand.Rand) *Poisson { return &Poisson{rate, r} }

// Gap returns the time from one event to the next in seconds.
func (p *Poisson) Gap() float64 { return p.rand.ExpFloat64() / p.rate }

// Next returns the time from one event to the next, rounded down: where gaps
// are not much longer than a nanosecond, sum up [Poisson.Gap] instead.
func (p *Poisson) Next() time.Duration {
	gap := p.Gap() * float64(time.Second)
	return time.Duration(min(gap, math.MaxInt64/2))
}
