//! Counts of walks by known steps that were compared with walks without, for developers.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Comparison {
    /// Walks with equal frames and stop reasons.
    pub(crate) equal: u64,
    /// Walks that differ.
    pub(crate) different: u64,
    /// Walks between which the VM may have freed code or unloaded classes.
    pub(crate) apart: u64,
    /// Stacks that got the same id by content.
    pub(crate) named: u64,
    /// Stacks that got another one.
    pub(crate) misnamed: u64,
}

impl Comparison {
    /// Counts a stack by whether it has the same content when its frames are named by groups and one by one.
    pub(crate) fn count_ids(&mut self, is_same: bool) {
        if is_same {
            self.named += 1;
        } else {
            self.misnamed += 1;
        }
    }

    /// Logs the counts.
    pub(super) fn report(&self) {
        let Self { equal, different, apart, named, misnamed } = self;
        tracing::warn!(
            "compared walks: {equal} equal, {different} different, {apart} apart; ids: {named} equal, {misnamed} different"
        );
    }
}
