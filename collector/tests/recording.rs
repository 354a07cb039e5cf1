//! Recordings: cut anywhere, they are what they were before the cut.

use crate::support;
use crate::support::small;
use profile::api::question::answer;
use profile::export::table::{self, Report};
use profile::query::flat::Flat;
use profile::query::selection::Selection;
use profile::source::Source;
use profile::source::recording::{Recording, RecordingError, RecordingReader, RecordingWriter, Recordings};
use profile::ui::standalone;
use proptest::prelude::*;
use proto::framing::{Checksums, FramedMessage, FramingError};
use proto::v1::AgentMessage;
use proto::v1::Hello;

fn read(bytes: &[u8]) -> Result<(Vec<AgentMessage>, Option<FramingError>), RecordingError> {
    let mut reader = RecordingReader::new(bytes)?;
    let messages = reader.by_ref().collect();
    Ok((messages, reader.cut()))
}

#[test]
fn a_whole_recording_has_no_cut() {
    let mut stream = small();
    let bytes = stream.bytes();
    assert_eq!(read(&bytes), Ok((stream.messages().to_vec(), None)));
}

#[test]
fn a_cut_at_any_byte_leaves_what_is_before_it() {
    let mut stream = small();
    let bytes = stream.bytes();
    let messages = stream.messages().to_vec();
    let first = stream.framed()[0].len();
    for cut in 0..bytes.len() {
        match read(&bytes[..cut]) {
            Ok((prefix, reason)) => {
                assert!(cut >= first);
                assert_eq!(prefix, messages[..prefix.len()], "cut at {cut}");
                let whole: usize = stream.framed()[..prefix.len()].iter().map(Vec::len).sum();
                let expected = (cut > whole).then_some(FramingError::Truncated(cut - whole));
                assert_eq!(reason, expected, "cut at {cut}");
            }
            Err(error) => {
                assert!(cut < first);
                assert_eq!(error, RecordingError::NothingRecorded, "cut at {cut}");
            }
        }
    }
}

#[test]
fn a_report_shows_the_samples_before_a_cut_or_says_that_there_are_none() {
    let mut stream = small();
    let bytes = stream.bytes();
    let framed: Vec<usize> = stream.framed().iter().map(Vec::len).collect();
    let report = |cut: usize| {
        table::report(&recordings(&bytes[..cut]), &Selection::default(), Report::of_methods(10), 0)
            .expect("a report")
    };
    let none = report(framed[0] + 1);
    assert!(
        none.starts_with("0 samples") && none.contains("of a message, before its first samples\n"),
        "{none}"
    );
    // All samples, but a part of the statistics after them.
    let all: usize = framed[..framed.len() - 2].iter().sum();
    let report = report(all + 1);
    assert!(report.starts_with("10 samples") && report.contains("after 1 bytes of a message\n"), "{report}");
}

/// Every answer about a damaged recording says once that samples are missing.
#[test]
fn every_answer_about_a_damaged_recording_says_so() {
    let mut bytes = as_sent(&mut small());
    *bytes.last_mut().expect("a byte") ^= 0x10;
    let recordings = Recordings::of(RecordingReader::new(&bytes[..]).expect("a recording"));
    let ask = |question: &str| {
        let pairs = match question {
            "callers/text" | "lines/text" | "callers" => vec![("method".to_owned(), "Work.run".to_owned())],
            _ => Vec::new(),
        };
        let answer = answer(&recordings, question, &pairs, 0).expect("an answer");
        String::from_utf8(answer.bytes).expect("text")
    };
    let damaged = "the recording is damaged, and samples are missing: ";
    for question in [
        "top",
        "tree",
        "callers/text",
        "lines/text",
        "diff/text",
        "view/hot-methods",
        "view/threads",
        "view/processes",
        "view/cpu-time-statistics",
        "flamegraph",
        "callers",
        "threads",
        "processes",
    ] {
        let text = ask(question);
        assert_eq!(text.matches(damaged).count(), 1, "{question}: {text}");
    }
}

#[test]
fn files_that_are_no_recordings_are_refused() {
    let check = |bytes: &[u8], expected| assert_eq!(read(bytes).expect_err("not a recording"), expected);
    check(b"", RecordingError::NothingRecorded);
    check(b"#!/bin/sh\n", RecordingError::NotARecording);
    check(&[0, 0, 0, 0, 0], RecordingError::NotARecording);
    let framed = small().framed();
    check(&framed[1], RecordingError::NotARecording);
    let missing = Recording::read(std::path::Path::new("/nonexistent/file"));
    assert_eq!(missing.map(|_| ()), Err(RecordingError::Io(std::io::ErrorKind::NotFound)));
}

#[test]
fn recordings_of_other_sessions_are_not_resumed() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("recording");
    std::fs::write(&path, small().bytes()).expect("write");
    let own = RecordingReader::open(&path).expect("a recording").hello().clone();
    for other in
        [Hello { session_id: 1, ..own.clone() }, Hello { secret: b"another".to_vec(), ..own.clone() }]
    {
        let other = RecordingWriter::resume(&path, &other).map(|_| ());
        assert_eq!(other, Err(RecordingError::OtherSession(0x00c0_ffee)));
    }
    let mut writer = RecordingWriter::resume(&path, &own).expect("our session");
    let framed = |message: &AgentMessage| {
        FramedMessage::encode(message.clone(), Checksums::Optional).expect("short message")
    };
    let repeated: Vec<FramedMessage> = small().messages().iter().map(framed).collect();
    assert_eq!(writer.append(&repeated).expect("nothing to write"), repeated.len() as u64);
    assert!(std::fs::read(&path).expect("recording") == small().bytes());
}

proptest! {
    #[test]
    fn damage_never_panics(position in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = small().bytes();
        let position = position.index(bytes.len());
        bytes[position] = value;
        let Ok(mut reader) = RecordingReader::new(&bytes[..]) else { return Ok(()) };
        let mut recording = Recording::new(reader.hello().clone());
        reader.by_ref().for_each(|message| recording.add(message));
        standalone::write(&recording, &Selection::default(), 0, Vec::new())?;
        let report = Report { verbose: true, ..Report::of_methods(10) };
        table::report(&recording, &Selection::default(), report, 0)?;
    }
}

/// The bytes of a recording as agents write it: with checksums.
fn as_sent(stream: &mut support::Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in stream.messages() {
        let body = message.body.as_ref().expect("a body");
        proto::framing::encode_body(message.sequence, body, &mut bytes).expect("a short message");
    }
    bytes
}

fn recordings(bytes: &[u8]) -> Recordings {
    Recordings::of(RecordingReader::new(bytes).expect("a recording"))
}

fn samples(source: &dyn Source) -> u64 {
    Flat::of(source, &Selection::default(), 0).expect("a table").0.samples()
}

/// `cat a.tickwalk b.tickwalk > c.tickwalk`
#[test]
fn recordings_one_after_the_other_are_sessions_of_one_source() {
    let mut second = small();
    second.rename(0xbee);
    let both = [as_sent(&mut small()), as_sent(&mut second)].concat();
    let read = recordings(&both);
    assert_eq!(read.sessions().len(), 2);
    assert_eq!((samples(&read), Source::cut(&read)), (2 * samples(&small().recording()), None));
    let report = table::report(&read, &Selection::default(), Report::of_methods(10), 0).expect("a report");
    assert!(report.starts_with("20 samples"), "{report}");
    // The same recording twice is one session.
    let twice = recordings(&[as_sent(&mut small()), as_sent(&mut small())].concat());
    assert_eq!((twice.sessions().len(), samples(&twice)), (1, samples(&small().recording())));
    // Where one program is expected, the answer names the cause.
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("both");
    std::fs::write(&path, &both).expect("write");
    assert_eq!(Recording::read(&path).map(|_| ()), Err(RecordingError::Sessions(2)));
}

/// Any byte is overwritten with any value: the samples are complete, or the report states that they are not.
#[test]
fn overwritten_bytes_are_reported() {
    let bytes = as_sent(&mut small());
    let whole = samples(&small().recording());
    for position in 0..bytes.len() {
        for value in [0, 1, 0x45, 0xff, bytes[position] ^ 1, bytes[position] ^ 0x80] {
            let mut overwritten = bytes.clone();
            overwritten[position] = value;
            let Ok(reader) = RecordingReader::new(&overwritten[..]) else { continue };
            let read = Recordings::of(reader);
            if value == bytes[position] {
                assert_eq!((samples(&read), Source::cut(&read)), (whole, None));
                continue;
            }
            assert!(
                Source::cut(&read).is_some(),
                "byte {position} is {value}, {} of {whole} samples",
                samples(&read)
            );
            let report = table::report(&read, &Selection::default(), Report::of_methods(10), 0);
            let text = report.unwrap_or_else(|error| error.to_string());
            assert!(text.contains("warning: the recording is"), "byte {position} is {value}: {text}");
        }
    }
}

#[test]
fn messages_after_an_overwritten_one_are_read() {
    let mut stream = small();
    let bytes = as_sent(&mut stream);
    let mut overwritten = bytes.clone();
    // The last byte before the statistics, which are the last message but one.
    let framed: Vec<usize> = stream
        .messages()
        .iter()
        .map(|message| {
            let mut one = Vec::new();
            let body = message.body.as_ref().expect("a body");
            proto::framing::encode_body(message.sequence, body, &mut one).expect("a short message");
            one.len()
        })
        .collect();
    let before: usize = framed[..framed.len() - 2].iter().sum();
    overwritten[before - 1] ^= 0x10;
    let (messages, cut) = read(&overwritten).expect("a recording");
    assert_eq!(messages.len(), framed.len() - 1, "all but one");
    assert!(matches!(cut, Some(FramingError::Damaged(_))), "{cut:?}");
    // A collector that continues it removes nothing.
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("recording");
    std::fs::write(&path, &overwritten).expect("write");
    let own = RecordingReader::open(&path).expect("a recording").hello().clone();
    RecordingWriter::resume(&path, &own).expect("our session");
    assert_eq!(std::fs::read(&path).expect("a recording"), overwritten);
    // Where the framing is lost, the rest is kept beside it.
    let mut lost = bytes.clone();
    lost[before] = 0x77;
    std::fs::write(&path, &lost).expect("write");
    RecordingWriter::resume(&path, &own).expect("our session");
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), before as u64);
    assert_eq!(std::fs::read(directory.path().join("recording.1")).expect("a copy"), lost);
}
