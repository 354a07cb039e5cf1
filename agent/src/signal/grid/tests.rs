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
    assert!(grid.claim(first, 1) && grid.claim(first, 4));
    assert!(!grid.claim(second, 1), "not yet the current timer");
    assert_eq!((grid.periods(), grid.switch(second)), (5, 5));
    assert!(!grid.claim(first, 1));
    assert!(grid.claim(second, 2));
    assert_eq!(grid.switch(first), 2);
}

/// One thread claims as a handler would, another replaces the timer: the claims are the periods that were read.
#[test]
fn claims_and_switches_at_the_same_time() {
    const SWITCHES: u64 = 20_000;
    let (grid, start) = (Grid::default(), Barrier::new(2));
    let current = AtomicU64::new(0);
    let (claimed, counted) = std::thread::scope(|scope| {
        let handler = scope.spawn(|| {
            let mut claimed = 0;
            start.wait();
            loop {
                let word = current.load(Ordering::Relaxed);
                if word == u64::MAX {
                    return claimed;
                }
                claimed += u64::from(grid.claim(Key(word as u8), 1));
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
