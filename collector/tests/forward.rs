//! Handing on to receivers built from OpenTelemetry's own definitions: good, late, slow, refusing and dying ones.

use std::collections::{BTreeMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use crate::otlp_rules::check_otlp;
use crate::support::Stream;
use crate::support::realistic::shop;
use collector::forward::{Account, Cause, Forwarder, Settings, Target};
use collector::store::{Retention, Store};
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_server::{
    ProfilesService, ProfilesServiceServer,
};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::{ProfilesDictionary, Sample};
use parking_lot::{Condvar, Mutex};
use profile::api::question::answer;
use proto::framing::{Checksums, FramedMessage};
use proto::v1::agent_message::Body;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

const NOW_NS: u64 = 1_790_000_100_000_000_000;

/// The reaction of a receiver to one request.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Take,
    Warn,
    Fail(tonic::Code),
    /// Takes it, but answers after the sender has given up.
    TakeLate,
    Reject,
}

#[derive(Default)]
struct Taken {
    calls: usize,
    requests: Vec<ExportProfilesServiceRequest>,
    headers: HashSet<String>,
}

/// State that a receiver keeps when it is restarted.
struct Memory {
    deeds: Box<dyn Fn(usize) -> Deed + Send + Sync>,
    taken: Mutex<Taken>,
    called: Condvar,
}

struct Service(Arc<Memory>);

#[tonic::async_trait]
impl ProfilesService for Service {
    async fn export(
        &self,
        request: Request<ExportProfilesServiceRequest>,
    ) -> Result<Response<ExportProfilesServiceResponse>, Status> {
        let header = request.metadata().get("tenant").and_then(|value| value.to_str().ok());
        let header = header.unwrap_or("none").to_owned();
        let deed = {
            let mut taken = self.0.taken.lock();
            let deed = (self.0.deeds)(taken.calls);
            taken.calls += 1;
            taken.headers.insert(header);
            let version = request.metadata().get("otlp-profiles-development-version");
            assert_eq!(version.map(|version| version.as_bytes()), Some(&b"1"[..]));
            check_otlp(request.get_ref());
            if matches!(deed, Deed::Take | Deed::Warn | Deed::TakeLate) {
                taken.requests.push(request.into_inner());
            }
            self.0.called.notify_all();
            deed
        };
        let partial = |rejected_profiles, error_message: &str| {
            let error_message = error_message.to_owned();
            Some(ExportProfilesPartialSuccess { rejected_profiles, error_message })
        };
        match deed {
            Deed::Fail(code) => return Err(Status::new(code, "not now")),
            // Never answered: the sender's patience is what ends the call.
            Deed::TakeLate => std::future::pending().await,
            _ => {}
        }
        Ok(Response::new(ExportProfilesServiceResponse {
            partial_success: match deed {
                Deed::Reject => partial(1, "no such tenant"),
                Deed::Warn => partial(0, "old version"),
                _ => None,
            },
        }))
    }
}

/// A receiver that can be killed and started again.
struct Receiver {
    memory: Arc<Memory>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Receiver {
    fn new(deeds: impl Fn(usize) -> Deed + Send + Sync + 'static) -> Receiver {
        let memory = Memory { deeds: Box::new(deeds), taken: Mutex::default(), called: Condvar::new() };
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = address.expect("a free port");
        let mut receiver = Receiver { memory: Arc::new(memory), address, runtime: None };
        receiver.start();
        receiver
    }

    fn start(&mut self) {
        let runtime = Runtime::new().expect("runtime");
        let service = ProfilesServiceServer::new(Service(Arc::clone(&self.memory)))
            .accept_compressed(CompressionEncoding::Gzip);
        let incoming = {
            let _entered = runtime.enter();
            tonic::transport::server::TcpIncoming::bind(self.address).expect("the port is free")
        };
        runtime.spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        self.runtime = Some(runtime);
    }

    /// Ends as a crash would: nothing under way is answered.
    fn kill(&mut self) {
        self.runtime.take().expect("it runs").shutdown_timeout(Duration::from_secs(5));
    }

    fn await_calls(&self, calls: usize) {
        let mut taken = self.memory.taken.lock();
        while taken.calls < calls {
            self.memory.called.wait(&mut taken);
        }
    }

    fn target(&self) -> Target {
        let target = Target::new(&format!("http://{}", self.address)).expect("address");
        target.with_header("tenant=7").expect("header")
    }

    /// CPU time by service and thread, and by leaf; requests that came twice count once.
    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        let mut seen = HashSet::new();
        for request in &self.memory.taken.lock().requests {
            let dictionary = request.dictionary.as_ref().expect("dictionary");
            for resource in &request.resource_profiles {
                let attributes = &resource.resource.as_ref().expect("resource").attributes;
                let name = attributes.iter().find(|attribute| attribute.key == "service.name");
                let Some(Value::StringValue(service)) =
                    name.and_then(|name| name.value.clone()).and_then(|value| value.value)
                else {
                    panic!("no service name")
                };
                for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
                    assert_eq!(profile.profile_id.len(), 16);
                    if !seen.insert(profile.profile_id.clone()) {
                        sums.repeated += 1;
                        continue;
                    }
                    let kind = profile.sample_type.as_ref().expect("sample type");
                    let unit = &dictionary.string_table[kind.unit_strindex as usize];
                    let factor = if unit == "count" { profile.period as u64 } else { 1 };
                    for sample in &profile.samples {
                        let cpu_ns = sample.values[0] as u64 * factor;
                        let thread = format!("{service} {}", thread(dictionary, sample));
                        *sums.threads.entry(thread).or_default() += cpu_ns;
                        *sums.leaves.entry(leaf(dictionary, sample)).or_default() += cpu_ns;
                    }
                }
            }
        }
        sums
    }
}

#[derive(Debug, Default, PartialEq)]
struct Sums {
    threads: BTreeMap<String, u64>,
    leaves: BTreeMap<String, u64>,
    repeated: usize,
}

impl Sums {
    fn total(&self) -> u64 {
        self.threads.values().sum()
    }
}

fn thread(dictionary: &ProfilesDictionary, sample: &Sample) -> String {
    let named = |index: &&i32| {
        let key = dictionary.attribute_table[**index as usize].key_strindex;
        dictionary.string_table[key as usize] == "thread.name"
    };
    let index = *sample.attribute_indices.iter().find(named).expect("thread.name");
    let value = dictionary.attribute_table[index as usize].value.clone().and_then(|value| value.value);
    let Some(Value::StringValue(name)) = value else { panic!("no name") };
    name
}

fn leaf(dictionary: &ProfilesDictionary, sample: &Sample) -> String {
    let stack = &dictionary.stack_table[sample.stack_index as usize];
    let location = &dictionary.location_table[stack.location_indices[0] as usize];
    let function = dictionary.function_table[location.lines[0].function_index as usize];
    dictionary.string_table[function.name_strindex as usize].clone()
}

/// A store that is handed on while sessions are stored in it.
struct Fixture {
    _directory: TempDir,
    store: Store,
    forwarder: Forwarder,
}

impl Fixture {
    fn new(targets: &[Target], settings: Settings) -> Fixture {
        let directory = tempfile::tempdir().expect("temporary directory");
        let store = Store::open(directory.path(), Retention::default()).expect("new store");
        let forwarder = Forwarder::start(&store, targets, settings).expect("forwarder");
        Fixture { _directory: directory, store, forwarder }
    }

    fn store(&self, mut stream: Stream) {
        let Some(Body::Hello(hello)) = &stream.messages()[0].body else { panic!("hello comes first") };
        let writer = self.store.session(hello).expect("open store");
        for message in stream.messages() {
            let message = FramedMessage::encode(message.clone(), Checksums::Optional).expect("short message");
            writer.append(vec![message.clone()]).expect("stored");
            // An agent that has lost its connection sends the last ones again.
            writer.append(vec![message]).expect("stored before");
        }
    }

    /// CPU time by service and thread, and by leaf, as the store has it.
    fn expected(&self) -> Sums {
        let rows =
            |question: &str, pairs: &[(&str, &str)], key: &dyn Fn(&serde_json::Value) -> String, column| {
                let pairs: Vec<(String, String)> =
                    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
                let answer = answer(&self.store, question, &pairs, NOW_NS).expect("answer");
                let answer: serde_json::Value = serde_json::from_slice(&answer.bytes).expect("JSON");
                let rows = answer[question].as_array().expect("rows").clone();
                let mut sums: BTreeMap<String, u64> = BTreeMap::new();
                for row in rows {
                    *sums.entry(key(&row)).or_default() += row[column].as_u64().expect("number");
                }
                sums.retain(|_, cpu_ns| *cpu_ns > 0);
                sums
            };
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        Sums {
            threads: rows(
                "threads",
                &[("limit", "10000")],
                &|row| format!("com.example.shop.Application {}", text(&row["thread"])),
                "cpu_ns",
            ),
            leaves: rows(
                "methods",
                &[("order", "self"), ("limit", "10000")],
                &|row| text(&row["name"]),
                "self_ns",
            ),
            repeated: 0,
        }
    }

    /// Ends the forwarder; the accounts, each of which has to close over everything stored.
    fn stop(self) -> Vec<Account> {
        let status = self.store.status();
        let accounts = self.forwarder.stop();
        let accounts: Vec<Account> = accounts.get().into_iter().map(|(_, account)| account).collect();
        for account in &accounts {
            assert_eq!(account.waiting.requests, 0);
            let dropped: u64 = Cause::ALL.iter().map(|&cause| account.dropped(cause).samples).sum();
            assert_eq!(account.delivered.samples + dropped, status.samples, "{account:?}");
        }
        accounts
    }
}

fn quick() -> Settings {
    Settings {
        every: Duration::from_millis(50),
        first_pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(50),
        timeout: Duration::from_secs(120),
        stop: Duration::from_secs(300),
        ..Settings::default()
    }
}

/// Hands on two sessions to a receiver that does `deeds`, and compares what it has in the end.
fn check_all_arrives(
    settings: Settings,
    deeds: impl Fn(usize) -> Deed + Send + Sync + 'static,
) -> (Account, Sums) {
    let receiver = Receiver::new(deeds);
    let fixture = Fixture::new(&[receiver.target()], settings);
    fixture.store(shop(true));
    fixture.store(of_session(shop(false), 2));
    let expected = fixture.expected();
    let account = fixture.stop()[0];
    let sums = receiver.sums();
    assert_eq!(account.delivered.cpu_ns, expected.total());
    assert_eq!((&sums.threads, &sums.leaves), (&expected.threads, &expected.leaves));
    assert_eq!(receiver.memory.taken.lock().headers, HashSet::from(["7".to_owned()]));
    (account, sums)
}

/// The same stream under another id.
fn of_session(mut stream: Stream, session_id: u64) -> Stream {
    stream.rename(session_id);
    stream
}

#[test]
fn everything_arrives_as_it_is_stored() {
    let (account, sums) = check_all_arrives(quick(), |_| Deed::Take);
    assert_eq!((account.retries, sums.repeated), (0, 0));
}

#[test]
fn long_requests_are_sent_in_parts() {
    let settings = Settings { request_bytes: 10_000, ..quick() };
    let (account, _) =
        check_all_arrives(settings, |call| if call % 2 == 0 { Deed::Take } else { Deed::Warn });
    assert!(account.delivered.requests > 5, "{account:?}");
    assert!(account.delivered.bytes / account.delivered.requests < 10_000, "{account:?}");
}

#[test]
fn a_receiver_that_is_unavailable_at_first_gets_all() {
    let codes = [tonic::Code::Unavailable, tonic::Code::Aborted, tonic::Code::DeadlineExceeded];
    let (account, sums) =
        check_all_arrives(quick(), move |call| codes.get(call).map_or(Deed::Take, |&code| Deed::Fail(code)));
    assert_eq!((account.retries, sums.repeated), (3, 0));
}

#[test]
fn a_request_repeated_after_a_late_answer_has_the_same_profile_id() {
    let settings = Settings { timeout: Duration::from_millis(500), ..quick() };
    let (account, sums) =
        check_all_arrives(settings, |call| if call == 1 { Deed::TakeLate } else { Deed::Take });
    // At least, for on a slow machine other answers may be late as well.
    assert!(account.retries >= 1 && sums.repeated >= 1, "{account:?}");
}

#[test]
fn refused_and_rejected_profiles_are_dropped_and_counted() {
    let refusing = Receiver::new(|_| Deed::Fail(tonic::Code::InvalidArgument));
    let rejecting = Receiver::new(|_| Deed::Reject);
    let good = Receiver::new(|_| Deed::Take);
    let fixture = Fixture::new(&[refusing.target(), rejecting.target(), good.target()], quick());
    fixture.store(shop(true));
    let expected = fixture.expected().total();
    let accounts = fixture.stop();
    assert_eq!(accounts[0].dropped(Cause::Refused).cpu_ns, expected);
    assert_eq!(accounts[1].dropped(Cause::Rejected).cpu_ns, expected);
    assert_eq!(accounts[2].delivered.cpu_ns, expected);
    assert_eq!(accounts.iter().map(|account| account.retries).sum::<u64>(), 0);
    assert_eq!(good.sums().total(), expected);
}

#[test]
fn a_receiver_that_dies_and_comes_back_has_everything_once() {
    // The second request is never answered; the receiver dies over it.
    let mut receiver = Receiver::new(|call| if call == 1 { Deed::TakeLate } else { Deed::Take });
    let fixture = Fixture::new(&[receiver.target()], Settings { request_bytes: 20_000, ..quick() });
    fixture.store(shop(true));
    receiver.await_calls(2);
    receiver.kill();
    fixture.store(of_session(shop(false), 2));
    receiver.start();
    receiver.await_calls(3);
    let expected = fixture.expected();
    let account = fixture.stop()[0];
    let sums = receiver.sums();
    assert_eq!(account.delivered.cpu_ns, expected.total());
    assert_eq!((&sums.threads, &sums.leaves), (&expected.threads, &expected.leaves));
    assert!(account.retries >= 1 && sums.repeated == 1, "{account:?} {}", sums.repeated);
}

#[test]
fn an_unreachable_receiver_loses_the_oldest_profiles_and_does_not_delay_the_store() {
    let mut receiver = Receiver::new(|_| Deed::Take);
    receiver.kill();
    let settings =
        Settings { request_bytes: 10_000, buffer_bytes: 30_000, stop: Duration::from_millis(200), ..quick() };
    let fixture = Fixture::new(&[receiver.target()], settings);
    fixture.store(shop(true));
    fixture.store(of_session(shop(false), 2));
    let stored = fixture.store.status().samples;
    let account = fixture.stop()[0];
    assert_eq!(account.delivered.samples, 0);
    let (full, stopped) =
        (account.dropped(Cause::BufferFull).samples, account.dropped(Cause::Stopped).samples);
    assert!(full > 0 && stopped > 0 && full + stopped == stored, "{account:?}");
    assert!(account.dropped(Cause::Stopped).bytes <= 30_000, "{account:?}");
}
