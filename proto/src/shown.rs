//! Messages whose texts can be shown.
//!
//! Names come from programs, and messages from agents that may be hostile, but tables and logs show their texts. So
//! code that decodes a message for readers calls [`AgentMessage::shown`]. Messages that are only kept or passed on
//! remain unchanged.

use crate::characters::show;
use crate::v1::{AgentMessage, Hello, Statistics, ThreadAccount, agent_message::Body};

impl AgentMessage {
    /// Returns the message with escapes in place of control characters in all texts that are shown.
    #[must_use]
    pub fn shown(mut self) -> Self {
        match &mut self.body {
            Some(Body::Hello(hello)) => hello.show(),
            Some(Body::Dictionary(dictionary)) => {
                dictionary.entries.iter_mut().flat_map(|entries| &mut entries.string).for_each(show);
                dictionary.threads.iter_mut().map(|thread| &mut thread.name).for_each(show);
            }
            Some(Body::Statistics(statistics)) => statistics.show(),
            Some(Body::Goodbye(goodbye)) => show(&mut goodbye.reason),
            Some(Body::Samples(_) | Body::Heartbeat(_)) | None => {}
        }
        self
    }
}

impl Hello {
    /// Replaces control characters by escapes in all texts that are shown; the token is not.
    pub fn show(&mut self) {
        let Hello { agent_version, jvm_version, jvm_name, command, host, service, labels, .. } = self;
        [agent_version, jvm_version, jvm_name, command, host, service].into_iter().for_each(show);
        labels.iter_mut().for_each(show);
    }
}

impl Statistics {
    fn show(&mut self) {
        self.stops.iter_mut().chain(&mut self.failed).for_each(|counter| show(&mut counter.name));
        self.lost.iter_mut().for_each(|lost| show(&mut lost.cause));
        self.threads.iter_mut().for_each(ThreadAccount::show);
        self.unloading.iter_mut().for_each(|unloading| show(&mut unloading.detector));
        for test in &mut self.self_tests {
            show(&mut test.capability);
            show(&mut test.detail);
        }
    }
}

impl ThreadAccount {
    fn show(&mut self) {
        self.lost.iter_mut().for_each(|lost| show(&mut lost.cause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Counter, Dictionary, Entries, Goodbye, Lost, SelfTest, Thread, Unloading};

    const SENT: &str = "a\u{1b}b";
    const SHOWN: &str = "a\\u001bb";

    /// All texts of a message are `SENT`; encoded, those of the shown message are all `SHOWN`.
    fn check(body: Body, texts: usize) {
        let shown = AgentMessage { sequence: 1, body: Some(body) }.shown();
        let debug = format!("{shown:?}");
        assert_eq!(debug.matches("a\\\\u001bb").count(), texts, "{debug}");
        assert!(!debug.contains("a\\u{1b}b"), "{debug}");
    }

    #[test]
    fn every_text_of_every_message_is_shown() {
        let text = || SENT.to_owned();
        check(
            Body::Hello(Hello {
                agent_version: text(),
                jvm_version: text(),
                jvm_name: text(),
                command: text(),
                host: text(),
                service: text(),
                labels: vec![text(), text()],
                ..Hello::default()
            }),
            8,
        );
        check(
            Body::Dictionary(Dictionary {
                entries: Some(Entries { string: vec![text(), text()], ..Entries::default() }),
                threads: vec![Thread { name: text(), ..Thread::default() }],
            }),
            3,
        );
        let lost = || vec![Lost { cause: text(), ..Lost::default() }];
        let counter = || vec![Counter { name: text(), count: 1 }];
        check(
            Body::Statistics(Statistics {
                stops: counter(),
                failed: counter(),
                lost: lost(),
                threads: vec![ThreadAccount { lost: lost(), ..ThreadAccount::default() }],
                unloading: Some(Unloading { detector: text(), ..Unloading::default() }),
                self_tests: vec![SelfTest { capability: text(), detail: text(), ..SelfTest::default() }],
                ..Statistics::default()
            }),
            7,
        );
        check(Body::Goodbye(Goodbye { reason: text() }), 1);
        assert_eq!(crate::characters::shown(SENT), SHOWN);
    }
}
