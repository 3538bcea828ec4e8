use super::*;
use futures::poll;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn memory(bytes: u64) -> Memory {
    Memory::new(Budget {
        bytes,
        ..Budget::default()
    })
}

#[tokio::test]
async fn grants_wait_for_room_and_come_when_some_is_given_back() {
    let memory = memory(100);
    let first = memory.grant("a", 4, 10, 10).await.unwrap();
    let second = memory.grant("a", 3, 10, 10).await.unwrap();
    assert_eq!((first.samples, second.samples), (4, 3));
    let mut third = Box::pin(memory.grant("a", 4, 10, 10));
    assert!(poll!(&mut third).is_pending());
    drop(first);
    assert_eq!(third.await.unwrap().samples, 4);
    assert_eq!(memory.read(|ledger| ledger.held_by("a")), 40);
}

#[tokio::test]
async fn what_can_never_fit_is_refused_with_both_numbers() {
    let memory = Memory::new(Budget {
        bytes: 100,
        lane: 30,
        ..Budget::default()
    });
    let refused = memory.grant("a", 4, 60, 11).await.err().unwrap();
    assert_eq!((refused.needed, refused.most), (71, 70));
    assert_eq!(memory.grant("a", 4, 60, 5).await.unwrap().samples, 2);
}

#[tokio::test]
async fn earlier_kinds_leave_to_later_ones_what_they_need() {
    let memory = Memory::new(Budget {
        bytes: 100,
        read: 10,
        decode: 20,
        lane: 30,
        ..Budget::default()
    });
    let grant = memory.grant("a", 1, 40, 0).await.unwrap();
    assert!(memory.try_reserve("a", Kind::Grant, 1).is_err());
    let read = memory.try_reserve("a", Kind::Read, 10).unwrap();
    assert!(memory.try_reserve("a", Kind::Read, 1).is_err());
    let lane = memory.try_reserve("", Kind::Lane, 30).unwrap();
    assert!(memory.try_reserve("", Kind::Lane, 1).is_err());
    let decode = memory.try_reserve("a", Kind::Decode, 20).unwrap();
    drop((grant, read, lane, decode));
    assert_eq!(memory.read(Ledger::held_in_all), 0);
}

#[tokio::test]
async fn a_tenant_alone_may_hold_all_and_beside_others_its_share() {
    let memory = memory(80);
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(memory.grant("greedy", 10, 0, 1).await.unwrap());
    }
    let mut more = Box::pin(memory.grant("greedy", 10, 0, 1));
    let mut modest = Box::pin(memory.grant("modest", 40, 0, 1));
    assert!(poll!(&mut more).is_pending() && poll!(&mut modest).is_pending());
    all.truncate(4);
    assert_eq!(modest.await.unwrap().samples, 40);
    assert!(poll!(&mut more).is_ready(), "no other tenant waits");
}

#[tokio::test]
async fn caches_are_evicted_under_memory_pressure() {
    let memory = memory(100);
    let cache = Arc::new(parking_lot::Mutex::new(vec![
        memory.try_reserve("", Kind::Cache, 40).unwrap(),
        memory.try_reserve("", Kind::Cache, 40).unwrap(),
    ]));
    let asked = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&cache);
    let noted = Arc::clone(&asked);
    memory.on_pressure(move |bytes| {
        noted.store(bytes, Ordering::Relaxed);
        let gone = theirs.lock().pop();
        drop(gone);
    });
    let reserved = memory.reserve("a", Kind::Request, 50).await.unwrap();
    assert_eq!((reserved.bytes(), asked.load(Ordering::Relaxed)), (50, 30));
    assert_eq!(cache.lock().len(), 1);
}

#[test]
fn a_reservation_grows_and_shrinks_and_a_thread_waits_for_it() {
    let memory = memory(100);
    let mut first = memory.try_reserve("a", Kind::Read, 60).unwrap();
    assert!(first.resize(101).is_err());
    first.resize(100).unwrap();
    let waits = std::time::Duration::from_millis(1);
    assert!(memory.reserve_blocking("b", Kind::Read, 50, waits).is_err());
    let other = memory.clone();
    let waiting = std::thread::spawn(move || {
        let longest = std::time::Duration::from_secs(60);
        other
            .reserve_blocking("b", Kind::Read, 50, longest)
            .map(|reserved| reserved.bytes())
    });
    first.resize(50).unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(50));
}
