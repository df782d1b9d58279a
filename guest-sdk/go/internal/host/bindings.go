//go:build wasip1

package host

import "unsafe"

// The imports of wit/, lowered: a list is an address and a length, `ret` the place of a result that does not fit a register. `quarry build` compares
// each with the WIT, so that one that is wrong fails the build of a guest that uses it.

//go:wasmimport quarry:shard/shard@0.1.0 cluster
func shardCluster(ret unsafe.Pointer)

//go:wasmimport quarry:shard/shard@0.1.0 number
func shardNumber() uint32

//go:wasmimport quarry:shard/shard@0.1.0 count
func shardCount() uint32

//go:wasmimport quarry:shard/shard@0.1.0 shard-for
func shardFor(key unsafe.Pointer, keyLen uint32) uint32

//go:wasmimport quarry:shard/shard@0.1.0 node
func shardNode(ret unsafe.Pointer)

//go:wasmimport quarry:shard/shard@0.1.0 generation
func shardGeneration() uint64

//go:wasmimport quarry:shard/shard@0.1.0 module
func shardModule(ret unsafe.Pointer)

//go:wasmimport quarry:shard/shard@0.1.0 revision
func shardRevision() uint64

//go:wasmimport quarry:shard/shard@0.1.0 options
func shardOptions(ret unsafe.Pointer)

//go:wasmimport quarry:shard/shard@0.1.0 status
func shardStatus() uint32

//go:wasmimport quarry:shard/shard@0.1.0 owned-for-ms
func shardOwnedFor() uint64

//go:wasmimport quarry:shard/current-call@0.1.0 deadline-ms
func callDeadline(ret unsafe.Pointer)

//go:wasmimport quarry:shard/current-call@0.1.0 traceparent
func callTraceparent(ret unsafe.Pointer)

//go:wasmimport quarry:shard/current-call@0.1.0 header
func callHeader(name string, ret unsafe.Pointer)

//go:wasmimport quarry:shard/current-call@0.1.0 set-content-type
func callSetContentType(media string)

//go:wasmimport quarry:shard/current-call@0.1.0 reply-when-applied
func callReplyWhenApplied()

//go:wasmimport quarry:shard/db@0.1.0 get
func dbGet(key unsafe.Pointer, keyLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 get-versioned
func dbGetVersioned(key unsafe.Pointer, keyLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 get-many
func dbGetMany(keys unsafe.Pointer, count uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 put
func dbPut(key unsafe.Pointer, keyLen uint32, value unsafe.Pointer, valueLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 put-for
func dbPutFor(key unsafe.Pointer, keyLen uint32, value unsafe.Pointer, valueLen uint32, ttl uint64, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 remove
func dbRemove(key unsafe.Pointer, keyLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 merge
func dbMerge(key unsafe.Pointer, keyLen uint32, operand unsafe.Pointer, operandLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 write
func dbWrite(ops unsafe.Pointer, count uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 scan
func dbScan(hasStart uint32, start unsafe.Pointer, startLen uint32, hasEnd uint32, end unsafe.Pointer, endLen uint32, order uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 scan-prefix
func dbScanPrefix(prefix unsafe.Pointer, prefixLen uint32, order uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]cursor.next
func cursorNext(self, max uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [resource-drop]cursor
func cursorDrop(self uint32)

//go:wasmimport quarry:shard/db@0.1.0 open-snapshot
func dbOpenSnapshot(ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]snapshot.seq
func snapshotSeq(self uint32) uint64

//go:wasmimport quarry:shard/db@0.1.0 [method]snapshot.get
func snapshotGet(self uint32, key unsafe.Pointer, keyLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]snapshot.get-many
func snapshotGetMany(self uint32, keys unsafe.Pointer, count uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]snapshot.scan
func snapshotScan(self, hasStart uint32, start unsafe.Pointer, startLen uint32, hasEnd uint32, end unsafe.Pointer, endLen uint32, order uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]snapshot.scan-prefix
func snapshotScanPrefix(self uint32, prefix unsafe.Pointer, prefixLen uint32, order uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [resource-drop]snapshot
func snapshotDrop(self uint32)

//go:wasmimport quarry:shard/db@0.1.0 begin
func dbBegin(isolation uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.get
func transactionGet(self uint32, key unsafe.Pointer, keyLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.get-many
func transactionGetMany(self uint32, keys unsafe.Pointer, count uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.put
func transactionPut(self uint32, key unsafe.Pointer, keyLen uint32, value unsafe.Pointer, valueLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.put-for
func transactionPutFor(self uint32, key unsafe.Pointer, keyLen uint32, value unsafe.Pointer, valueLen uint32, ttl uint64, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.remove
func transactionRemove(self uint32, key unsafe.Pointer, keyLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.merge
func transactionMerge(self uint32, key unsafe.Pointer, keyLen uint32, operand unsafe.Pointer, operandLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.scan
func transactionScan(self, hasStart uint32, start unsafe.Pointer, startLen uint32, hasEnd uint32, end unsafe.Pointer, endLen uint32, order uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.scan-prefix
func transactionScanPrefix(self uint32, prefix unsafe.Pointer, prefixLen uint32, order uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [method]transaction.commit
func transactionCommit(self uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/db@0.1.0 [resource-drop]transaction
func transactionDrop(self uint32)

//go:wasmimport quarry:shard/durability@0.1.0 durable-seq
func durableSeq() uint64

//go:wasmimport quarry:shard/durability@0.1.0 notify-when-durable
func durableNotify(seq, tag uint64, ret unsafe.Pointer)

//go:wasmimport quarry:shard/timers@0.1.0 set
func timersSet(name string, after uint64, payload unsafe.Pointer, payloadLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/timers@0.1.0 set-durable
func timersSetDurable(name string, after uint64, payload unsafe.Pointer, payloadLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/timers@0.1.0 cancel
func timersCancel(name string, ret unsafe.Pointer)

//go:wasmimport quarry:shard/timers@0.1.0 due-ms
func timersDue(name string, ret unsafe.Pointer)

//go:wasmimport quarry:shard/cluster@0.1.0 call
func clusterCall(shard uint32, method string, hasKey uint32, key unsafe.Pointer, keyLen uint32, payload unsafe.Pointer, payloadLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/cluster@0.1.0 call-key
func clusterCallKey(key unsafe.Pointer, keyLen uint32, method string, payload unsafe.Pointer, payloadLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/cluster@0.1.0 query
func clusterQuery(shard uint32, method string, hasKey uint32, key unsafe.Pointer, keyLen uint32, payload unsafe.Pointer, payloadLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/cluster@0.1.0 query-key
func clusterQueryKey(key unsafe.Pointer, keyLen uint32, method string, payload unsafe.Pointer, payloadLen uint32, ret unsafe.Pointer)

//go:wasmimport quarry:shard/log@0.1.0 enabled
func logEnabled(level uint32) uint32

//go:wasmimport quarry:shard/log@0.1.0 write
func logWrite(level uint32, message string, fields unsafe.Pointer, count uint32)

//go:wasmimport quarry:shard/metrics@0.1.0 describe
func metricsDescribe(name, help string)

//go:wasmimport quarry:shard/metrics@0.1.0 add
func metricsAdd(name string, labels unsafe.Pointer, count uint32, by uint64)

//go:wasmimport quarry:shard/metrics@0.1.0 set
func metricsSet(name string, labels unsafe.Pointer, count uint32, value float64)

//go:wasmimport quarry:shard/metrics@0.1.0 observe
func metricsObserve(name string, labels unsafe.Pointer, count uint32, value float64)
