use super::*;
use crate::waiters::Policy;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::time::Duration;

const BUDGET: Budget = Budget {
    bytes: 1000,
    spare: 30,
    small: 32,
    modest: 120,
    grant: 60,
    read: 40,
    decode: 80,
    lane: 200,
};

/// Kinds in order of reservation, with the maximum size per request.
const STEPS: [(Kind, u64); 4] = [
    (Kind::Request, 100),
    (Kind::Grant, BUDGET.grant),
    (Kind::Read, BUDGET.read),
    (Kind::Decode, BUDGET.decode),
];

/// Simulated job that reserves memory for all kinds in sequence and finally releases the whole amount.
#[derive(Debug)]
struct Job {
    tenant: &'static str,
    takes: Vec<u64>,
    held: Vec<Reservation>,
}

impl Job {
    /// Requests the next kind. Returns false if all kinds are reserved.
    fn ask(&self, ledger: &mut Ledger, id: u64) -> bool {
        let step = self.held.len();
        let Some((kind, _)) = STEPS.get(step) else {
            return false;
        };
        ledger
            .ask(id, self.tenant, Ask::exactly(*kind, self.takes[step]))
            .unwrap();
        true
    }
}

fn job() -> impl Strategy<Value = Job> {
    let takes = STEPS.map(|(_, most)| 1..=most).to_vec();
    (prop::sample::select(vec!["a", "b", "c"]), takes).prop_map(|(tenant, takes)| Job {
        tenant,
        takes,
        held: Vec::new(),
    })
}

fn check(ledger: &Ledger) {
    assert!(ledger.held_in_all() <= BUDGET.bytes, "{ledger:?}");
    let by_tenant: u64 = ledger.tenants().map(|(_, bytes)| bytes).sum();
    assert_eq!(by_tenant + ledger.base(), ledger.held_in_all(), "nothing is lost");
}

proptest! {
    /// Jobs that reserve kinds in order, within the budget per kind, are served eventually. Other jobs can
    /// end in any order.
    #[test]
    fn nobody_waits_for_ever_and_nothing_is_beyond_the_budget(
        jobs in prop::collection::vec(job(), 1..60),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 60),
        base in 0_u64..400,
    ) {
        let mut ledger = Ledger::new(BUDGET);
        ledger.set_base(base);
        let mut running: BTreeMap<u64, Job> = (0..).zip(jobs).collect();
        let mut asked: BTreeMap<u64, u64> = BTreeMap::new();
        let mut next = 0;
        for (number, job) in &running {
            next += 1;
            prop_assert!(job.ask(&mut ledger, next));
            asked.insert(next, *number);
        }
        let mut done = Vec::new();
        let mut ends = ends.iter().cycle();
        while !running.is_empty() {
            let before = (done.len(), asked.len());
            while let Some((id, reservation)) = ledger.next() {
                check(&ledger);
                let number = asked.remove(&id).unwrap();
                let job = running.get_mut(&number).unwrap();
                job.held.push(reservation);
                next += 1;
                if job.ask(&mut ledger, next) {
                    asked.insert(next, number);
                } else {
                    done.push(number);
                }
            }
            prop_assert!(!done.is_empty(), "deadlock of {before:?}: {ledger:?}");
            let number = done.swap_remove(ends.next().unwrap().index(done.len()));
            for reservation in running.remove(&number).unwrap().held.iter().rev() {
                ledger.give_back(reservation, Duration::ZERO);
                check(&ledger);
            }
        }
        prop_assert_eq!((ledger.held_in_all(), ledger.waiting()), (base, 0));
    }

    /// Tenants with equal demand differ by no more than two grants.
    #[test]
    fn who_wants_much_leaves_as_much_to_the_others(each in 1_u64..50, order in prop::collection::vec(0_usize..3, 300)) {
        let names = ["a", "b", "c"];
        let mut ledger = Ledger::new(BUDGET);
        for (id, tenant) in (1..).zip(names.iter().cycle().take(300)) {
            ledger.ask(id, tenant, Ask::exactly(Kind::Grant, each)).unwrap();
        }
        let mut held: BTreeMap<&str, Vec<Reservation>> = BTreeMap::new();
        let mut back = order.into_iter();
        loop {
            while let Some((_, reservation)) = ledger.next() {
                check(&ledger);
                let name = names.into_iter().find(|name| **name == *reservation.tenant).unwrap();
                held.entry(name).or_default().push(reservation);
            }
            let most = |name: &str| ledger.held_by(name);
            let least = names.into_iter().map(most).min().unwrap();
            prop_assert!(names.into_iter().all(|name| most(name) <= least + 2 * each), "{ledger:?}");
            if ledger.waiting() < 200 {
                break;
            }
            let Some(who) = back.next() else { break };
            let Some(reservation) = held.get_mut(names[who]).and_then(Vec::pop) else { continue };
            ledger.give_back(&reservation, Duration::ZERO);
        }
    }
}

#[test]
fn who_has_its_share_keeps_nobody_waiting() {
    let mut ledger = Ledger::new(Budget {
        bytes: 100,
        ..Budget::default()
    });
    let all = ledger.reserve("hog", Kind::Grant, 80).unwrap();
    ledger.ask(1, "hog", Ask::exactly(Kind::Grant, 30)).unwrap();
    assert!(ledger.next().is_none());
    // A later kind comes first, unless the tenant has exceeded its share.
    ledger.ask(2, "modest", Ask::exactly(Kind::Request, 10)).unwrap();
    let (id, modest) = ledger.next().unwrap();
    assert_eq!((id, modest.bytes), (2, 10));
    ledger.give_back(&all, Duration::ZERO);
    assert_eq!(ledger.next().map(|(id, _)| id), Some(1));
}

/// A first request that exceeds the fair share is served when it fits, and does not block the queue until then. A
/// request within the share blocks tenants with more memory, but not tenants with little memory.
#[test]
fn a_large_request_delays_neither_fair_nor_modest_ones() {
    let served = |ledger: &mut Ledger| ledger.next();
    let mut ledger = Ledger::new(BUDGET);
    let unread = ledger.reserve("unread", Kind::Grant, 300).unwrap();
    let all = ledger.most(Kind::Grant);
    ledger.ask(1, "huge", Ask::exactly(Kind::Grant, all)).unwrap();
    ledger.ask(2, "fair", Ask::exactly(Kind::Request, 100)).unwrap();
    let (id, fair) = served(&mut ledger).unwrap();
    assert_eq!(id, 2, "the huge request blocks the queue");
    ledger.ask(3, "large", Ask::exactly(Kind::Grant, 140)).unwrap();
    ledger.ask(4, "fair", Ask::exactly(Kind::Grant, 50)).unwrap();
    assert!(
        served(&mut ledger).is_none(),
        "the request of a tenant with more memory was served first"
    );
    ledger
        .ask(5, "modest", Ask::exactly(Kind::Grant, BUDGET.modest / 4))
        .unwrap();
    let (id, modest) = served(&mut ledger).unwrap();
    assert_eq!(id, 5, "the large request blocks small tenants");
    ledger.give_back(&modest, Duration::ZERO);
    ledger.give_back(&fair, Duration::ZERO);
    let (id, large) = served(&mut ledger).unwrap();
    assert_eq!(id, 3);
    let (id, fair) = served(&mut ledger).unwrap();
    assert_eq!(id, 4);
    for reservation in [unread, large, fair] {
        assert!(served(&mut ledger).is_none());
        ledger.give_back(&reservation, Duration::ZERO);
    }
    assert_eq!(served(&mut ledger).map(|(id, _)| id), Some(1));
}

/// A tenant with large reads leaves memory for the reads of others.
#[test]
fn a_reader_leaves_memory_for_others() {
    let mut ledger = Ledger::new(BUDGET);
    let mut reads: Vec<_> = iter::from_fn(|| ledger.reserve("hog", Kind::Read, 20).ok()).collect();
    ledger.ask(1, "hog", Ask::exactly(Kind::Read, 20)).unwrap();
    ledger.ask(2, "hog", Ask::exactly(Kind::Request, 60)).unwrap();
    ledger.ask(3, "other", Ask::exactly(Kind::Read, 5)).unwrap();
    assert_eq!(ledger.next().map(|(id, _)| id), Some(3));
    assert!(ledger.next().is_none());
    ledger.give_back(&reads.pop().unwrap(), Duration::ZERO);
    assert_eq!(ledger.next().map(|(id, _)| id), Some(1));
}

#[test]
fn a_reader_that_leaves_memory_for_others_does_not_block_them() {
    let mut ledger = Ledger::new(BUDGET);
    let fair = ledger.reserve("fair", Kind::Request, BUDGET.modest / 4).unwrap();
    let read = ledger.reserve("hog", Kind::Read, 20).unwrap();
    let lane = ledger.reserve("", Kind::Lane, ledger.room(Kind::Lane)).unwrap();
    ledger.set_base(ledger.room(Kind::Read) - 39);
    assert_eq!((ledger.room(Kind::Read), ledger.room(Kind::Grant)), (39, 19));
    ledger.ask(1, "hog", Ask::exactly(Kind::Read, 20)).unwrap();
    ledger.ask(2, "fair", Ask::exactly(Kind::Grant, 15)).unwrap();
    let (id, grant) = ledger.next().unwrap();
    assert_eq!(id, 2);
    for reservation in [grant, lane, read, fair] {
        ledger.give_back(&reservation, Duration::ZERO);
    }
    assert_eq!(ledger.next().map(|(id, _)| id), Some(1));
}

/// Simulates a tenant that replaces each released read by a new request until the request `wanted` is served.
/// Returns the number of released reads.
fn reads_until(ledger: &mut Ledger, mut reads: VecDeque<Reservation>, wanted: u64) -> usize {
    let mut given_back = 0;
    for id in 10_000.. {
        while let Some((id, got)) = ledger.next() {
            check(ledger);
            if id == wanted {
                return given_back;
            }
            assert_eq!(got.kind, Kind::Read);
            reads.push_back(got);
        }
        ledger.give_back(&reads.pop_front().unwrap(), Duration::ZERO);
        given_back += 1;
        ledger.ask(id, "hog", Ask::exactly(Kind::Read, 20)).unwrap();
        assert!(given_back < 1000, "the request is never served: {ledger:?}");
    }
    given_back
}

#[test]
fn who_reads_on_and_on_keeps_nobody_waiting_for_longer_than_its_reads_take() {
    for (kind, bytes) in [(Kind::Request, 100), (Kind::Grant, 60)] {
        let mut ledger = Ledger::new(BUDGET);
        for id in 1..100 {
            ledger.ask(id, "hog", Ask::exactly(Kind::Read, 20)).unwrap();
        }
        let reads: VecDeque<_> = iter::from_fn(|| ledger.next()).map(|(_, read)| read).collect();
        assert!(
            ledger.room(kind) < 20 + BUDGET.read / 2 && reads.len() > 30,
            "a single tenant can hold almost all memory: {ledger:?}"
        );
        ledger.ask(1000, "modest", Ask::exactly(kind, bytes)).unwrap();
        let most = reads.len();
        assert!(reads_until(&mut ledger, reads, 1000) <= most);
    }
}

/// Memory of one tenant for small requests.
const SMALL: u64 = BUDGET.small / 16;

proptest! {
    /// A tenant's small requests are served immediately, for any other reservations and requests.
    #[test]
    fn small_requests_wait_for_nobody(
        asks in prop::collection::vec((prop::sample::select(vec!["a", "b", "c"]), 0_usize..4, 1_u64..100), 1..100),
        lane in 0_u64..1000,
    ) {
        let mut ledger = Ledger::new(BUDGET);
        let mut held = Vec::new();
        for (id, (tenant, step, bytes)) in (1..).zip(asks) {
            let (kind, most) = STEPS[step];
            ledger.ask(id, tenant, Ask::exactly(kind, bytes.min(most))).unwrap();
            held.extend(iter::from_fn(|| ledger.next()));
        }
        held.extend(ledger.reserve("", Kind::Lane, lane.min(ledger.room(Kind::Lane))).map(|lane| (0, lane)));
        ledger.set_base(BUDGET.spare);
        for (id, tenant) in (1000..).zip(["d", "e", "f"]) {
            ledger.ask(id, tenant, Ask::exactly(Kind::Request, SMALL)).unwrap();
            let (next, small) = ledger.next().unwrap();
            prop_assert_eq!((next, small.bytes), (id, SMALL));
            check(&ledger);
            held.push((id, small));
        }
        held.iter().for_each(|(_, reservation)| ledger.give_back(reservation, Duration::ZERO));
        prop_assert_eq!(ledger.held_in_all(), BUDGET.spare);
        // The area for small requests is completely free again.
        prop_assert_eq!(ledger.room(Kind::Lane), BUDGET.bytes - 2 * BUDGET.spare - BUDGET.small - BUDGET.left_by_lanes());
    }
}

#[test]
fn a_tenant_has_its_part_for_small_requests_and_no_more() {
    let mut ledger = Ledger::new(BUDGET);
    let all = ledger
        .reserve("hog", Kind::Lane, ledger.room(Kind::Lane))
        .unwrap();
    ledger.set_base(ledger.room(Kind::Request));
    let mut first = ledger.reserve("hog", Kind::Request, SMALL).unwrap();
    assert!(ledger.reserve("hog", Kind::Request, 1).is_err());
    assert!(ledger.resize(&mut first, SMALL + 1).is_err());
    ledger.resize(&mut first, SMALL - 1).unwrap();
    let second = ledger.reserve("hog", Kind::Request, 1).unwrap();
    assert!(ledger.reserve("hog", Kind::Request, 1).is_err());
    assert!(
        ledger.reserve("modest", Kind::Request, SMALL + 1).is_err(),
        "it is not small"
    );
    ledger.give_back(&all, Duration::ZERO);
    ledger.set_base(0);
    ledger.resize(&mut first, 10 * SMALL).unwrap();
    ledger.resize(&mut first, SMALL).unwrap();
    ledger.give_back(&second, Duration::ZERO);
    ledger.give_back(&first, Duration::ZERO);
    assert_eq!(ledger.held_in_all(), 0);
    assert_eq!(
        ledger.room(Kind::Lane),
        BUDGET.bytes - BUDGET.spare - BUDGET.small - BUDGET.left_by_lanes()
    );
}

/// Lanes leave memory with which a tenant with little memory is served, whatever the other tenants hold.
#[test]
fn lanes_leave_memory_for_tenants_with_little_memory() {
    let mut ledger = Ledger::new(BUDGET);
    while ledger.reserve("hog", Kind::Grant, 10).is_ok() {}
    while ledger.reserve("hog", Kind::Read, 5).is_ok() {}
    assert!(
        ledger.reserve("", Kind::Lane, 1).is_ok(),
        "lanes have a floor of their own"
    );
    while ledger.reserve("", Kind::Lane, 1).is_ok() {}
    for kind in [Kind::Request, Kind::Grant, Kind::Read, Kind::Decode] {
        ledger.reserve("modest", kind, 5).unwrap();
    }
    check(&ledger);
}

/// A base that grows while all memory is reserved uses the spare memory. Lanes get no memory until the spare
/// memory is free again, and the shortage asks caches to release it.
#[test]
fn a_growing_base_takes_what_is_spare_and_nothing_new_comes_until_that_is_free() {
    let mut ledger = Ledger::new(BUDGET);
    let mut lane = ledger.reserve("", Kind::Lane, ledger.room(Kind::Lane)).unwrap();
    ledger.set_base(BUDGET.spare);
    check(&ledger);
    assert_eq!(
        (ledger.room(Kind::Lane), ledger.shortage()),
        (0, BUDGET.spare),
        "caches should release it"
    );
    let less = lane.bytes - BUDGET.spare;
    ledger.resize(&mut lane, less).unwrap();
    assert_eq!((ledger.room(Kind::Lane), ledger.shortage()), (0, 0));
    ledger.resize(&mut lane, less - 1).unwrap();
    assert_eq!(ledger.room(Kind::Lane), 1);
}

/// The last part of the memory goes to tenants with little memory, so a base that grows affects the tenant
/// with the most memory first.
#[test]
fn when_the_base_grows_the_largest_tenant_is_refused_first() {
    let mut ledger = Ledger::new(BUDGET);
    let mut large = ledger.reserve("large", Kind::Request, 100).unwrap();
    ledger.set_base(ledger.room(Kind::Request) - BUDGET.modest);
    assert!(ledger.reserve("large", Kind::Request, 10).is_err());
    assert!(ledger.resize(&mut large, 110).is_err());
    ledger.ask(1, "large", Ask::exactly(Kind::Request, 10)).unwrap();
    ledger.ask(2, "quiet", Ask::exactly(Kind::Request, 20)).unwrap();
    let (next, quiet) = ledger.next().unwrap();
    assert_eq!((next, quiet.bytes), (2, 20), "the large tenant blocks the queue");
    let more = ledger.reserve("quiet", Kind::Request, 10).unwrap();
    assert!(
        ledger.reserve("quiet", Kind::Request, 10).is_err(),
        "no longer modest"
    );
    let grant = ledger.reserve("large", Kind::Grant, 50).unwrap();
    assert!(
        ledger.reserve("large", Kind::Grant, 20).is_err(),
        "expected an error for a second grant"
    );
    for reservation in [grant, more, quiet] {
        ledger.give_back(&reservation, Duration::ZERO);
    }
    ledger.set_base(0);
    assert_eq!(ledger.next().map(|(id, _)| id), Some(1));
    check(&ledger);
}
