// Package metrics is the guest's own metrics, on the node's /metrics as quarry_guest_NAME. Nothing here fails: what is not well formed, or over a
// bound, is dropped and counted. A name has 1 to 64 bytes: a letter, then a-z, 0-9 and _.
package metrics

import "quarry/guest/internal/host"

// Label is a name and a value of a series. Up to four a metric.
type Label = host.Pair

// Describe says what a metric is, for people who read /metrics.
func Describe(name, help string) { host.DescribeMetric(name, help) }

// Add adds to a counter; the host adds `_total` to its name.
func Add(counter string, by uint64, labels ...Label) { host.AddMetric(counter, labels, by) }

// Set sets a gauge.
func Set(gauge string, value float64, labels ...Label) { host.SetMetric(gauge, labels, value) }

// Observe puts a value into a histogram.
func Observe(histogram string, value float64, labels ...Label) {
	host.ObserveMetric(histogram, labels, value)
}
