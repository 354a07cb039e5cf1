//! Keys, and the counts of handler and control side.

use std::sync::Barrier;

use super::*;

#[test]
fn every_timer_differs_from_the_three_before_it() {
    let first = Key::default().next(5);
    let later = [first.next(5), first.next(5).next(5), first.next(5).next(5).next(5)];
    assert!(later.iter().all(|key| *key != first && key.period() == 5));
    assert_eq!(later[2].next(5), first, "two bits");
}

#[test]
fn late_claims_are_refused_and_counts_are_exact() {
    let grid = Grid::default();
    let (first, second) = (Key::default(), Key::default().next(3));
    assert_eq!([grid.claim(first, 1, true), grid.claim(first, 4, true)], [Claim::Taken(1), Claim::Taken(4)]);
    assert_eq!(grid.claim(second, 1, true), Claim::Overtaken, "not yet the current timer");
    assert_eq!((grid.periods(), grid.switch(second)), (5, 5));
    assert_eq!(grid.claim(first, 1, true), Claim::Overtaken);
    assert_eq!(grid.claim(second, 2, true), Claim::Taken(2));
    assert_eq!(grid.switch(first), 2);
}

#[test]
fn a_sample_claims_what_waits() {
    let (grid, key) = (Grid::default(), Key::default().next(7));
    grid.switch(key);
    grid.begin(20);
    assert_eq!([grid.claim(key, 1, false), grid.claim(key, 8, false)], [Claim::Passed; 2]);
    assert_eq!((grid.periods(), grid.key()), (0, key));
    assert_eq!(grid.claim(key, 8, true), Claim::Taken(37));
    assert_eq!(grid.claim(key, 3, false), Claim::Passed);
    assert_eq!((grid.periods(), grid.key()), (37, key));
    let next = key.next(7);
    assert_eq!(grid.switch(next), 37, "what waits is not claimed");
    assert_eq!(grid.claim(next, 1, true), Claim::Taken(1), "nothing waits under the next timer");
}

#[test]
fn no_more_wait_than_fit() {
    let (grid, key) = (Grid::default(), Key::default());
    grid.begin(u64::MAX);
    assert_eq!(grid.claim(key, 1, false), Claim::Taken(MAX_WAITING + 1));
    assert_eq!(grid.claim(key, MAX_WAITING, false), Claim::Passed);
    assert_eq!(grid.claim(key, 1 << 31, false), Claim::Taken(MAX_WAITING + (1 << 31)));
    assert_eq!(grid.periods(), 2 * MAX_WAITING + 1 + (1 << 31));
}

/// One thread claims as a handler would, another replaces the timer: the claims are the periods that were read.
#[test]
fn claims_and_switches_at_the_same_time() {
    const SWITCHES: u64 = 20_000;
    let (grid, start) = (Grid::default(), Barrier::new(2));
    let current = AtomicU64::new(0);
    let (claimed, counted) = std::thread::scope(|scope| {
        let handler = scope.spawn(|| {
            let (mut claimed, mut turn) = (0, 0_u32);
            start.wait();
            loop {
                let word = current.load(Ordering::Relaxed);
                if word == u64::MAX {
                    return claimed;
                }
                turn = turn.wrapping_add(1);
                if let Claim::Taken(periods) = grid.claim(Key(word as u8), 1, turn % 3 == 0) {
                    claimed += periods;
                }
            }
        });
        start.wait();
        let mut counted = 0;
        let mut key = Key::default();
        for index in 0..SWITCHES {
            key = key.next((index % 16) as u8);
            counted += grid.switch(key);
            // Late on purpose now and then: the claims in between are refused.
            current.store(u64::from(key.0), Ordering::Relaxed);
        }
        current.store(u64::MAX, Ordering::Relaxed);
        let claimed: u64 = handler.join().expect("the handler's thread");
        (claimed, counted + grid.periods())
    });
    assert_eq!(claimed, counted);
}
