//! The cells of the queue study: workload and settings of each run.
//!
//! Sizes are the size classes of the agent, powers of two from 16 to 2,048 entries. Settings of other profilers are
//! rounded up to a class; 5,000 entries, the JDK's fixed size at 1 ms, become 2,048.

use std::fmt;

/// Work of the threads at the bottom of their stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// One native call that uses about this many milliseconds of CPU time without a return to Java.
    Native(u32),
    /// Sorting and allocation in Java.
    Java,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native(ms) => write!(f, "native {ms} ms"),
            Self::Java => f.write_str("Java"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// The default: no debug hook is set.
    Shipped,
    Fixed(u32),
    /// Grows with losses, from the first number of entries to the second.
    Dynamic(u32, u32),
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped => f.write_str("shipped"),
            Self::Fixed(entries) => write!(f, "fixed {entries}"),
            Self::Dynamic(start, most) => write!(f, "dynamic {start} to {most}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// The default: the period follows the load.
    Shipped,
    /// A fixed period in milliseconds.
    Every(u32),
    /// Alternates between draining and pausing, for this many milliseconds each.
    Paused(u32),
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped => f.write_str("shipped"),
            Self::Every(ms) => write!(f, "every {ms} ms"),
            Self::Paused(ms) => write!(f, "paused {ms} ms"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Work at the bottom of the stacks.
    pub work: Work,
    pub threads: u32,
    pub depth: u32,
    pub interval_ms: u32,
    pub queues: Queues,
    pub drain: Drain,
    pub run_ms: u32,
}

impl Cell {
    pub fn options(&self) -> String {
        let queues = match self.queues {
            Queues::Shipped => String::new(),
            Queues::Fixed(entries) => format!(",debug=queue:{entries}/fixed"),
            Queues::Dynamic(start, most) => format!(",debug=queue:{start}..{most}"),
        };
        let drain = match self.drain {
            Drain::Shipped => String::new(),
            Drain::Every(ms) => format!(",debug=drain:{ms}ms"),
            Drain::Paused(ms) => format!(",debug=pause-drain:{ms}ms"),
        };
        format!("interval={}ms{queues}{drain}", self.interval_ms)
    }

    /// Returns the arguments of the Java program.
    pub fn arguments(&self) -> Vec<String> {
        let (work, native_ms) = match self.work {
            Work::Native(ms) => ("native", ms),
            Work::Java => ("java", 0),
        };
        let numbers = [self.threads, self.depth, native_ms, self.run_ms];
        ["queue", work].map(str::to_owned).into_iter().chain(numbers.map(|n| n.to_string())).collect()
    }

    /// Returns the settings as text; cells with equal text share a row of the page.
    pub fn settings(&self) -> String {
        match (self.queues, self.drain) {
            (Queues::Shipped, Drain::Shipped) => "shipped".to_owned(),
            (queues, Drain::Shipped) => format!("{queues} entries"),
            (queues, drain) => format!("{queues}, drain {drain}"),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, threads, depth, interval_ms, .. } = self;
        write!(f, "{work}, depth {depth}, {interval_ms} ms, {threads} threads: {}", self.settings())
    }
}

/// The JDK's fixed size: 500 entries at 10 ms, proportionally more below.
fn published_fixed(interval_ms: u32) -> Queues {
    Queues::Fixed(if interval_ms >= 10 { 512 } else { 2048 })
}

/// The JDK's dynamic sizes: 20 to 2,000 entries.
const PUBLISHED_DYNAMIC: Queues = Queues::Dynamic(32, 2048);
/// Period of the JDK's sampler thread, the only one that drains the queues of threads in native code.
const PUBLISHED_DRAIN: Drain = Drain::Every(100);

/// Returns cells of about a second each, the most important first, because a time limit may skip the last ones. Each of
/// `processors` has at least one thread, so that queues fill at the highest rate.
pub fn quick(processors: u32) -> Vec<Cell> {
    let paused = Drain::Paused(300);
    let mut cells = Vec::new();
    let mut add = |settings: &dyn Fn(u32) -> (Queues, Drain), threads: u32| {
        for work in [Work::Native(5), Work::Native(250), Work::Java] {
            for depth in [100, 1200] {
                for interval_ms in [1, 10] {
                    let (queues, drain) = settings(interval_ms);
                    cells.push(Cell { work, threads, depth, interval_ms, queues, drain, run_ms: 1_200 });
                }
            }
        }
    };
    add(&|_| (Queues::Shipped, Drain::Shipped), processors);
    add(&|_| (Queues::Shipped, paused), processors);
    add(&|_| (Queues::Shipped, PUBLISHED_DRAIN), processors);
    add(&|_| (Queues::Fixed(16), PUBLISHED_DRAIN), processors);
    add(&|_| (PUBLISHED_DYNAMIC, PUBLISHED_DRAIN), processors);
    add(&|interval_ms| (published_fixed(interval_ms), PUBLISHED_DRAIN), processors);
    add(&|_| (Queues::Shipped, Drain::Shipped), 32 * processors);
    add(&|_| (Queues::Fixed(16), paused), processors);
    cells
}

/// Returns the whole grid: all sizes, intervals, depths, kinds of work, numbers of threads and drains.
pub fn full(processors: u32) -> Vec<Cell> {
    let sizes = [16, 32, 64, 128, 256, 512, 1024, 2048];
    let queues: Vec<Queues> = [Queues::Shipped, PUBLISHED_DYNAMIC]
        .into_iter()
        .chain(sizes.into_iter().map(Queues::Fixed))
        .collect();
    let native = [5, 10, 20, 60, 250, 1_000].map(Work::Native);
    let works: Vec<Work> = native.into_iter().chain([Work::Java]).collect();
    let mut cells = Vec::new();
    for threads in [processors, 64 * processors] {
        for &work in &works {
            for depth in [100, 1200] {
                for interval_ms in [1, 5, 10, 20] {
                    for drain in [Drain::Shipped, PUBLISHED_DRAIN, Drain::Paused(1_000)] {
                        cells.extend(queues.iter().map(|&queues| Cell {
                            work,
                            threads,
                            depth,
                            interval_ms,
                            queues,
                            drain,
                            run_ms: 4_000,
                        }));
                    }
                }
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_as_options_and_arguments() {
        let cell = Cell {
            work: Work::Native(250),
            threads: 4,
            depth: 1200,
            interval_ms: 1,
            queues: Queues::Dynamic(32, 2048),
            drain: Drain::Every(100),
            run_ms: 1000,
        };
        assert_eq!(cell.options(), "interval=1ms,debug=queue:32..2048,debug=drain:100ms");
        assert_eq!(cell.arguments(), ["queue", "native", "4", "1200", "250", "1000"]);
        assert_eq!(cell.settings(), "dynamic 32 to 2048, drain every 100 ms");
        let shipped = Cell { queues: Queues::Shipped, drain: Drain::Shipped, ..cell };
        assert_eq!(shipped.options(), "interval=1ms");
        assert_eq!(shipped.settings(), "shipped");
    }

    #[test]
    fn no_cell_is_run_twice_and_the_quick_ones_fit_five_minutes() {
        for cells in [quick(2), full(2)] {
            let distinct = cells.iter().enumerate().all(|(i, cell)| !cells[..i].contains(cell));
            assert!(distinct);
        }
        let quick: u32 = quick(2).iter().map(|cell| cell.run_ms).sum();
        assert!(quick < 120_000, "{quick} ms of work, and a JVM's start for each cell");
    }
}
