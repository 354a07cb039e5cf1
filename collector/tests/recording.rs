//! Recordings: cut anywhere, they are what they were before the cut.

mod support;

use profile::export::table::{self, Report};
use profile::query::selection::Selection;
use profile::source::recording::{Recording, RecordingError, RecordingReader, RecordingWriter};
use profile::ui::standalone;
use proptest::prelude::*;
use proto::framing::FramingError;
use proto::v1::AgentMessage;
use proto::v1::Hello;
use support::small;

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
fn other_files_are_named_as_such() {
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
fn resuming_checks_whose_recording_it_is() {
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
    let framed = small().framed();
    let last = framed.len() as u64;
    let repeated = (1..).zip(framed.iter().map(Vec::as_slice));
    assert_eq!(writer.append(repeated).expect("nothing to write"), last);
    assert!(std::fs::read(&path).expect("recording") == small().bytes());
}

#[test]
fn a_recording_is_written_to_the_disk_on_demand() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("recording");
    let mut writer = RecordingWriter::create(&path).expect("a file");
    let framed = small().framed();
    writer.append((1..).zip(framed.iter().map(Vec::as_slice))).expect("written");
    assert_eq!(writer.synced_bytes(), 0, "ten seconds have not passed");
    writer.sync().expect("a disk");
    assert_eq!(writer.synced_bytes(), small().bytes().len() as u64);
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
