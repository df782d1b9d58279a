//! Operators: they read the record, order something, and wait for what comes of it, unless they die first.

use quarry_core::deploy::{
    Active, Command, Gates, Outcome, Plan, Refused, RolloutRecord, Selection, command,
};
use quarry_core::lease::record::Nonce;
use quarry_core::rules::Mutation;

use super::super::super::queue::{SECOND, Time};
use super::super::World;
use super::{Reply, Who, Work};

/// How often an operator looks what has become of a rollout.
const WATCH: Time = 2 * SECOND;
/// How often an operator tries to write before it gives up.
const TRIES: u32 = 5;

/// An operator at work.
#[derive(Debug)]
pub struct Operator {
    /// What it wants, under a name of its own.
    order: Command,
    by: String,
    /// Whether it came to a quiet world.
    quiet: bool,
    state: State,
    asking: Option<u64>,
    tries: u32,
    /// It is dead, or was told.
    pub over: bool,
    pub told: Option<Told>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// It reads the record to write over it.
    Reads,
    /// It has written this, and waits for the answer; whether it came through is not known yet.
    Writes(Box<RolloutRecord>),
    /// The outcome of that write is not known: it reads whether it stands there.
    Doubts(Box<RolloutRecord>),
    /// Its rollout, of this number, is in progress.
    Watches(u64),
}

/// What an operator is told in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Its rollout ended so.
    Ended(u64, Outcome),
    /// Another rollout came after its own, whose end nobody can tell any more.
    Superseded(u64),
    /// It was refused.
    Refused(Refused),
    /// What was no deployment was done.
    Done,
    /// The store failed, or others were first, again and again; the rollout that it may have begun has this number.
    Unknown,
}

impl World {
    /// The first deployment, and then orders at random.
    pub(in super::super) fn begin_orders(&mut self) {
        if self.setup.deploys.on {
            self.deploy(1, Plan::All);
            let gap = self.rollouts.rng.exponential(self.setup.deploys.gap);
            self.rollout_after(None, self.setup.ttl + gap, Work::Order);
        }
    }

    /// Somebody wants something.
    pub(super) fn order(&mut self) {
        if !self.hostile {
            return;
        }
        let gap = self.rollouts.rng.exponential(self.setup.deploys.gap) + SECOND / 10;
        self.rollout_after(None, gap, Work::Order);
        let rng = &mut self.rollouts.rng;
        let revision = 1 + rng.range(0, self.setup.deploys.guests.len() as u64);
        let plan = *rng.pick(&[
            Plan::All,
            Plan::All,
            Plan::Waves(30),
            Plan::Waves(50),
            Plan::Canary(20),
            Plan::Chosen,
        ]);
        let by = String::new;
        match rng.range(0, 10) {
            0..4 => {
                self.deploy(revision, plan);
            }
            // Two at once: one of them wins, and the other is told.
            4 => {
                let other = 1 + rng.range(0, self.setup.deploys.guests.len() as u64);
                self.deploy(revision, plan);
                self.deploy(other, Plan::All);
            }
            5 | 6 => self.command_rollout(Command::Promote),
            7 => self.command_rollout(Command::Abort { by: by() }),
            8 => self.command_rollout(Command::Pause),
            _ => self.command_rollout(Command::Resume),
        }
    }

    pub(super) fn deploy(&mut self, target: u64, plan: Plan) -> usize {
        let rng = &mut self.rollouts.rng;
        let first = if plan == Plan::Chosen {
            let shard = rng.range(0, u64::from(self.setup.shards));
            let text = shard.to_string();
            Selection::parse(&text, self.setup.shards).expect("a shard")
        } else {
            Selection::None
        };
        let deploys = &self.setup.deploys;
        let order = Command::Deploy {
            target,
            by: String::new(),
            // They have names of their own here.
            order: Nonce::new(0),
            plan,
            first,
            gates: Gates {
                traps: 3,
                least_calls: 20,
                errors_percent: 20,
                latency_percent: 0,
            },
            step_timeout_ms: deploys.step_timeout / 1_000_000,
            bake_ms: deploys.bake / 1_000_000,
        };
        self.begin_operator(order)
    }

    pub(super) fn command_rollout(&mut self, order: Command) {
        self.begin_operator(order);
    }

    fn begin_operator(&mut self, mut order: Command) -> usize {
        let operator = self.rollouts.operators.len();
        let name = format!("o{operator}");
        if let Command::Deploy { by, .. } | Command::Abort { by } = &mut order {
            by.clone_from(&name);
        }
        self.trace(|| format!("{name} orders {order:?}"));
        self.figures.orders += 1;
        self.rollouts.operators.push(Operator {
            order,
            by: name,
            quiet: !self.hostile,
            state: State::Reads,
            asking: None,
            tries: 0,
            over: false,
            told: None,
        });
        if self.hostile && self.rollouts.rng.chance(0.2) {
            let after = self.rollouts.rng.exponential(3 * SECOND);
            self.rollout_after(None, after, Work::Dies(operator));
        }
        self.operate(operator);
        operator
    }

    pub(super) fn operator_dies(&mut self, operator: usize) {
        self.trace(|| format!("o{operator} dies"));
        self.rollouts.operators[operator].over = true;
    }

    /// It reads the record.
    pub(super) fn operate(&mut self, operator: usize) {
        let at_work = &self.rollouts.operators[operator];
        if !at_work.over && at_work.asking.is_none() {
            let id = self.read_record(Who::Operator(operator));
            self.rollouts.operators[operator].asking = Some(id);
        }
    }

    pub(super) fn operator_heard(&mut self, operator: usize, id: u64, reply: Reply) {
        let at_work = &mut self.rollouts.operators[operator];
        if at_work.over || at_work.asking != Some(id) {
            return;
        }
        at_work.asking = None;
        let state = at_work.state.clone();
        match (state, reply) {
            (State::Reads, Reply::Found(found)) => self.operator_orders(operator, found),
            (State::Doubts(wrote), Reply::Found(found)) => {
                self.operator_doubts(operator, &wrote, found);
            }
            (State::Watches(number), Reply::Found(found)) => {
                self.operator_watches(operator, number, found);
            }
            (State::Writes(wrote), Reply::Written(..)) => self.operator_won(operator, &wrote),
            (State::Writes(wrote), _) => {
                if self.rules.broken(Mutation::OrderIsWon) {
                    return self.operator_won(operator, &wrote);
                }
                // Somebody else was first, or nobody knows, which is the same where a client writes twice.
                self.rollouts.operators[operator].state = State::Doubts(wrote);
                self.operate(operator);
            }
            (_, _) => self.rollout_after(None, WATCH, Work::Operator(operator)),
        }
    }

    /// It has read the record, and writes what it wants over it.
    fn operator_orders(&mut self, operator: usize, found: Option<(u64, RolloutRecord)>) {
        let fresh = RolloutRecord::fresh();
        let before = found.as_ref().map_or(&fresh, |(_, record)| record);
        let at_work = &mut self.rollouts.operators[operator];
        at_work.tries += 1;
        if at_work.tries > TRIES {
            return self.tell_operator(operator, Told::Unknown);
        }
        let order = at_work.order.clone();
        match command(before, order) {
            Err(why) => self.tell_operator(operator, Told::Refused(why)),
            Ok(next) => {
                let over = found.as_ref().map(|(tag, record)| (*tag, record));
                let id = self.write_record(Who::Operator(operator), over, next, None);
                let wrote = self.rollouts.accesses[&id]
                    .write
                    .as_ref()
                    .map(|write| write.record.clone())
                    .expect("a write");
                let at_work = &mut self.rollouts.operators[operator];
                at_work.asking = Some(id);
                at_work.state = State::Writes(Box::new(wrote));
            }
        }
    }

    /// Whether what it wrote came through. Of a deployment that shows by who ordered the rollout; else only by the nonce, until somebody
    /// else writes.
    fn operator_doubts(
        &mut self,
        operator: usize,
        wrote: &RolloutRecord,
        found: Option<(u64, RolloutRecord)>,
    ) {
        let by = self.rollouts.operators[operator].by.clone();
        let record = found.map_or_else(RolloutRecord::fresh, |(_, record)| record);
        let deploys = matches!(
            self.rollouts.operators[operator].order,
            Command::Deploy { .. }
        );
        let ordered = |active: &Active| active.by == by;
        if record.nonce == wrote.nonce
            || (deploys
                && record.number == wrote.number
                && record.active.as_ref().is_some_and(ordered))
        {
            return self.operator_won(operator, wrote);
        }
        // While the version that it wrote over stands, its write may still come; and where another has its counter, it never will.
        let still = record.counter <= wrote.counter;
        let other = deploys
            && record.number == wrote.number
            && record.active.as_ref().is_some_and(|active| active.by != by);
        if still || other {
            self.rollouts.operators[operator].state = State::Reads;
            return self.operate(operator);
        }
        self.tell_operator(operator, Told::Unknown);
    }

    fn operator_won(&mut self, operator: usize, wrote: &RolloutRecord) {
        let number = wrote.number;
        let at_work = &mut self.rollouts.operators[operator];
        if matches!(at_work.order, Command::Deploy { .. }) {
            at_work.state = State::Watches(number);
            self.check_won(operator, number);
            self.rollout_after(None, WATCH, Work::Operator(operator));
        } else {
            self.tell_operator(operator, Told::Done);
        }
    }

    fn operator_watches(
        &mut self,
        operator: usize,
        number: u64,
        found: Option<(u64, RolloutRecord)>,
    ) {
        let Some((_, record)) = found else {
            return self.tell_operator(operator, Told::Unknown);
        };
        let ended = record.last.as_ref().filter(|last| last.number == number);
        match ended {
            Some(last) => self.tell_operator(operator, Told::Ended(number, last.outcome)),
            None if record.number > number => {
                self.tell_operator(operator, Told::Superseded(number));
            }
            None => self.rollout_after(None, WATCH, Work::Operator(operator)),
        }
    }

    fn tell_operator(&mut self, operator: usize, told: Told) {
        self.trace(|| format!("o{operator} is told {told:?}"));
        self.check_told(operator, &told);
        let at_work = &mut self.rollouts.operators[operator];
        at_work.over = true;
        at_work.told = Some(told);
    }

    /// Whether an operator has reason to be left in doubt.
    pub(super) fn may_doubt(&self, operator: usize) -> bool {
        let at_work = &self.rollouts.operators[operator];
        !at_work.quiet || !matches!(at_work.order, Command::Deploy { .. })
    }

    /// The name under which an operator orders.
    pub(super) fn operator_name(&self, operator: usize) -> &str {
        &self.rollouts.operators[operator].by
    }
}
