//! A ring whose producer can look at the waiting elements, and change them.
//!
//! Problem: a client of the stack-walk API that meets the same pc again changes the newest element instead of adding
//! one, while the consumer may be about to take it.
//! Approach: positions only count up. `head` is the first that is not handled, `claimed` the first that the
//! consumer has not taken, `tail` the first free one. The producer *pins* an element before it uses it; the consumer
//! claims elements before it reads them. Each stores its own word, executes a full fence, and loads the other's word,
//! so at least one sees the other: the producer then refuses the element, or the consumer withdraws the claim.
//! Invariant: a pinned element is not claimed until it is unpinned, or the consumer overrides the pin.
//!
//! All words are atomics, so a producer that keeps an element too long damages only its content.

use core::ops::Deref;

use crate::fault::{Fault, is_broken};
use crate::sync::{AtomicU64, Ordering, array_of, fence};

/// Words of an element that its producer may change while it waits.
pub const SHOWN_WORDS: usize = 4;
/// Words of an element that only the consumer sees.
pub const KEPT_WORDS: usize = 3;

/// An element.
#[repr(C)]
pub struct Element {
    shown: [AtomicU64; SHOWN_WORDS],
    kept: [AtomicU64; KEPT_WORDS],
}

impl Default for Element {
    fn default() -> Self {
        Self { shown: array_of!(AtomicU64::new(0)), kept: array_of!(AtomicU64::new(0)) }
    }
}

impl Element {
    /// The words that the producer may change.
    pub fn shown(&self) -> &[AtomicU64; SHOWN_WORDS] {
        &self.shown
    }

    /// The other words.
    pub fn kept(&self) -> [u64; KEPT_WORDS] {
        // Relaxed: the claim has acquired them.
        self.kept.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

/// A ring over memory of the caller's, with one producer and one consumer at a time.
pub struct ElementRing<S> {
    elements: S,
    head: AtomicU64,
    claimed: AtomicU64,
    tail: AtomicU64,
    /// One more than the lowest pinned position; 0 if none is pinned.
    pinned: AtomicU64,
    /// Pins so far, so that the consumer sees whether one was renewed.
    pins: AtomicU64,
}

impl<S: Deref<Target = [Element]>> ElementRing<S> {
    /// An empty ring of as many elements as there are in `elements`.
    pub fn new(elements: S) -> Self {
        let zero = || AtomicU64::new(0);
        Self { elements, head: zero(), claimed: zero(), tail: zero(), pinned: zero(), pins: zero() }
    }

    /// Elements that the ring holds.
    pub fn capacity(&self) -> usize {
        self.elements.len()
    }

    fn at(&self, position: u64) -> Option<&Element> {
        let index = position.checked_rem(self.elements.len() as u64)?;
        self.elements.get(index as usize)
    }

    /// The position of element `n` between `first` and the tail: 0 is the oldest, -1 the newest.
    fn position(&self, n: i64, first: u64) -> Option<u64> {
        let tail = self.tail.load(Ordering::Acquire);
        let position = if n < 0 { tail.checked_add_signed(n)? } else { first.checked_add_signed(n)? };
        (first..tail).contains(&position).then_some(position)
    }

    /// Elements that wait, those that the consumer has claimed included. For any thread.
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).saturating_sub(head) as usize
    }

    /// Returns whether no element waits. For any thread.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// # Signal Safe Methods
///
/// For the producer.
impl<S: Deref<Target = [Element]>> ElementRing<S> {
    /// Returns whether [`push`](Self::push) would refuse.
    pub fn is_full(&self) -> bool {
        // Acquire: pairs with the consumer's release of the head, after which it does not read the element.
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Relaxed).saturating_sub(head) >= self.elements.len() as u64
    }

    /// Adds an element; returns whether there was room.
    pub fn push(&self, shown: [u64; SHOWN_WORDS], kept: [u64; KEPT_WORDS]) -> bool {
        // Relaxed: only the producer changes it.
        let tail = self.tail.load(Ordering::Relaxed);
        let Some(element) = self.at(tail).filter(|_| !self.is_full()) else { return false };
        for (word, value) in element.shown.iter().zip(shown).chain(element.kept.iter().zip(kept)) {
            // Relaxed: the tail publishes them.
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the acquire in `claim`.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// Pins element `n` of those that are not claimed, 0 the oldest, -1 the newest; `None` if there is none.
    ///
    /// It may be used until [`unpin`](Self::unpin).
    pub fn pin(&self, n: i64) -> Option<&Element> {
        let claimed = self.claimed.load(Ordering::Acquire);
        let position = self.position(n, claimed)?;
        let element = self.at(position)?;
        // Relaxed: only the producer changes these two, and the fence orders them.
        let before = self.pinned.load(Ordering::Relaxed);
        let own = position.saturating_add(1);
        self.pins.store(self.pins.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.pinned.store(if before == 0 { own } else { own.min(before) }, Ordering::Relaxed);
        if !is_broken(Fault::Pin) {
            // Pairs with the fence in `claim`.
            fence(Ordering::SeqCst);
        }
        if self.claimed.load(Ordering::Relaxed) > position {
            self.pinned.store(before, Ordering::Relaxed);
            return None;
        }
        Some(element)
    }

    /// Ends the use of all pinned elements.
    pub fn unpin(&self) {
        // Release: pairs with the acquire in `claim`, which then sees what was stored to the elements.
        self.pinned.store(0, Ordering::Release);
    }
}

/// For the consumer.
impl<S: Deref<Target = [Element]>> ElementRing<S> {
    /// Pins so far.
    pub fn pins(&self) -> u64 {
        self.pins.load(Ordering::Relaxed)
    }

    /// Claims all elements up to the lowest pinned one, or all if pins are overridden; returns how many are claimed.
    pub fn claim(&self, overrides_pins: bool) -> usize {
        let former = self.claimed.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `push`.
        let mut limit = self.tail.load(Ordering::Acquire);
        self.claimed.store(limit, Ordering::Release);
        if !is_broken(Fault::Pin) {
            // Pairs with the fence in `pin`.
            fence(Ordering::SeqCst);
        }
        let pinned = self.pinned.load(Ordering::Acquire);
        if let Some(lowest) = pinned.checked_sub(1).filter(|&lowest| !overrides_pins && lowest < limit) {
            limit = lowest.max(former);
            self.claimed.store(limit, Ordering::Release);
        }
        limit.saturating_sub(self.head.load(Ordering::Relaxed)) as usize
    }

    /// The oldest claimed element.
    pub fn first(&self) -> Option<&Element> {
        // Relaxed: only the consumer changes them.
        let (head, claimed) = (self.head.load(Ordering::Relaxed), self.claimed.load(Ordering::Relaxed));
        if head < claimed { self.at(head) } else { None }
    }

    /// Element `n` of all that wait, claimed or not: 0 is the oldest, -1 the newest.
    pub fn peek(&self, n: i64) -> Option<&Element> {
        self.position(n, self.head.load(Ordering::Relaxed)).and_then(|position| self.at(position))
    }

    /// Frees the place of the oldest claimed element.
    pub fn release(&self) {
        let (head, claimed) = (self.head.load(Ordering::Relaxed), self.claimed.load(Ordering::Relaxed));
        if head < claimed {
            // Release: pairs with the acquire in `is_full`.
            self.head.store(head.wrapping_add(1), Ordering::Release);
        }
    }
}
