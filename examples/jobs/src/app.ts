// A durable queue of jobs. Nobody fetches them: each has a durable timer, and runs in the shard when that is due.
//
// The routing key of a call is the queue. `input` is what the kind of the job takes (see work.ts).
//
// | method | payload | reply |
// |---|---|---|
// | `enqueue` | `{"id":"a1","kind":"tally","input":{},"delay_ms":0}` | the job; sent again, the same job as it is by then |
// | `cancel` | `{"id":"a1"}` | the job, which will not run |
// | `retry` | `{"id":"a1"}` | the job, dead before, with all its attempts ahead |
// | `status`, also as a query | `{"id":"a1"}` | the job |
// | `list`, also as a query | `{"state":"dead","after":"a1","limit":100}`, all optional | a line of JSON per job, by id |
// | `sum`, also as a query | `{"name":"sent"}` | what jobs of the kind `tally` added up |
// | `receive` | a message, from another shard | - |
// | `inbox`, also as a query (the key is who) | `{"after":"mail.a1","limit":100}`, both optional | what jobs of the kind `deliver` brought |
//
// What holds: an id has one job. A job that was acknowledged runs, until it is done, dead or cancelled. Its effects in its own shard
// happen once; those in others at least once, under the job's id. An attempt counts when it begins, so that a job which takes its instance
// down ends too.

import { defineGuest, metrics } from 'quarry-guest';

import { settingsOf } from './options.js';
import * as queue from './queue.js';
import * as work from './work.js';

export default defineGuest({
  calls: {
    enqueue: queue.enqueue,
    cancel: queue.cancel,
    retry: queue.retry,
    receive: work.receive,
  },
  queries: {
    status: queue.status,
    list: queue.list,
    sum: work.sum,
    inbox: work.inbox,
  },
  fire: queue.run,
  start: () => metrics.describe('jobs_attempts', 'Attempts of jobs, by what became of them.'),
  validate: (options) => void settingsOf(options),
});
