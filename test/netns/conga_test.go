package netns

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/lab"
)

// congaRun runs a file of folder conga, after some changes, under a scheme.
func congaRun(t *testing.T, file, scheme string, changes ...func(*fabric.File)) *lab.Report {
	t.Helper()
	testenv.NeedRoot(t)
	f, err := fabric.Load("conga/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(f)
	}
	f.Name = fmt.Sprintf("n%d_%d", os.Getpid(), fabs.Add(1))
	l := lab.New(f)
	l.Binaries, l.BaseDir = daemons, "conga"
	rep, err := l.Run(context.Background(), lab.RunOptions{Scheme: scheme, Sample: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := rep.Failure(); err != nil {
		t.Fatal(err)
	}
	return rep
}

// lowerShare is the part of L0's traffic that goes over its uplink to S1.
func lowerShare(t *testing.T, rep *lab.Report) float64 {
	t.Helper()
	var lower, all uint64
	for _, p := range rep.Phases {
		for _, u := range p.Leaves[0].Uplinks {
			all += u.Bytes
			if u.Link == "L0-S1.0" {
				lower += u.Bytes
			}
		}
	}
	if all < 1e6 {
		t.Fatalf("L0 sent %d bytes", all)
	}
	return float64(lower) / float64(all)
}

// median returns the median of an odd number of values; of two, between what it lies if a
// third comes.
func median(of []float64) (least, most float64) {
	of = slices.Sorted(slices.Values(of))
	return of[(len(of)-1)/2], of[len(of)/2]
}

// TestCongaFigure2 is CONGA §2.4, Figure 2, over real links: the path over S1 has
// half the capacity. Balancing by local load splits evenly whatever happens
// downstream; CONGA leaves the slow path what it can carry, and delivers more.
//
// The file's ten connections are those of docs/conga-lab.md. They make few flowlets, the
// fewer the idler the machine is, and fall into one of few splits, which moved single runs
// by some 15 points. Four connections for each pair of hosts, which share what its link
// carries, gave L0's uplink to S1 45–47 % under local and 36–38 % under conga in
// seven runs each on a busy machine. So one run each decides, and if it says no the medians
// of three do. ECMP is not held against.
func TestCongaFigure2(t *testing.T) {
	share, goodput := make(map[string][]float64), make(map[string][]float64)
	idle := 1.0
	for run := 1; run <= 3; run++ {
		for _, scheme := range []string{"local", "conga"} {
			rep := congaRun(t, "fig2.yaml", scheme, func(f *fabric.File) {
				f.Workloads[0].Flows, f.Workloads[0].Duration = 4, 5*time.Second
			})
			s, g := lowerShare(t, rep), rep.Result.Workloads[0].GoodputBps/1e6
			share[scheme], goodput[scheme] = append(share[scheme], s), append(goodput[scheme], g)
			idle = min(idle, *rep.Result.Machine.CPUIdlePercent/100)
			t.Logf("%s: %.1f Mbit/s, %.1f %% through S1; CPU idle at least %.0f %%", scheme, g, 100*s, 100*idle)
		}
		if run == 2 {
			continue
		}
		local, _ := median(share["local"])
		conga, _ := median(share["conga"])
		even := conga > local-0.04
		localMbit, _ := median(goodput["local"])
		congaMbit, _ := median(goodput["conga"])
		// With no CPU left goodput is what the machine gives, not the scheme; the split
		// above still is. How much more conga delivers is docs/conga-lab.md's to say.
		less := congaMbit < 0.95*localMbit && idle >= 0.05
		switch {
		case !even && !less:
			return
		case run < 3:
			continue
		case even:
			t.Errorf("conga sends %.3f through S1, local %.3f: want at least 0.04 less", conga, local)
		}
		if less {
			t.Errorf("conga delivers %.1f Mbit/s, local %.1f: want no less than 0.95 of it", congaMbit, localMbit)
		}
	}
}

// TestCongaFigure3 is CONGA §2.4, Figure 3: L1's right split depends on L0's
// traffic. Once L0 sends, which can through S0 only, L1 leaves S0 to it.
//
// Three repetitions left 5.3–12.2 % of L1's traffic on S0, and delivered 23.2–23.7
// Mbit/s of L0's 23.9 that fit (docs/conga-lab.md).
//
// One run on a machine that had a core to spare once was far off; the median of three
// counts. They are made only if they can change what comes out, and none after one that is as
// good as those.
func TestCongaFigure3(t *testing.T) {
	var shares, delivered []float64
	for run := 1; run <= 3; run++ {
		rep := congaRun(t, "fig3.yaml", "conga")
		share, l0 := shareOfL1(t, rep), rep.Result.Workloads[1].GoodputBps/1e6
		t.Logf("%.1f %% of L1's traffic goes through S0, %.1f Mbit/s of L0's arrive; CPU idle %.0f %%", 100*share, l0, *rep.Result.Machine.CPUIdlePercent)
		shares, delivered = append(shares, share), append(delivered, l0)
		if run == 1 && share <= 0.15 && l0 >= 20 {
			return
		}
		if run == 1 {
			continue
		}
		_, share = median(shares)
		l0, _ = median(delivered)
		switch {
		case share <= 0.3 && l0 >= 15:
			return
		case run < 3:
			continue
		case share > 0.3:
			t.Errorf("%.3f of L1's traffic goes through S0 beside L0's: want at most 0.3", share)
		}
		if l0 < 15 {
			t.Errorf("%.1f Mbit/s of L0's 25 arrive: want at least 15", l0)
		}
	}
}

// shareOfL1 returns how much of L1's traffic goes through S0 once L0 sends, which it
// does from 5 s on.
func shareOfL1(t *testing.T, rep *lab.Report) float64 {
	t.Helper()
	const link, from, to = "L1-S0.0", 6 * time.Second, 10 * time.Second
	var part, all float64
	for _, u := range rep.Uplinks {
		for k, at := range u.At {
			if u.Leaf != "L1" || at < from || at > to {
				continue
			}
			for j, bits := range u.Bits[k] {
				all += float64(bits)
				if u.Links[j] == link {
					part += float64(bits)
				}
			}
		}
	}
	if all == 0 {
		t.Fatal("L1 sent nothing")
	}
	return part / all
}
