//! Origins with several addresses, of which some are black holes: packets to them are lost without an answer. In
//! namespaces with interfaces and an `/etc/hosts` of their own; always the real process.

use crate::support::prelude::*;
use std::{thread, time::Instant};

const NAME: &str = "several.test";
/// The origin's port.
const PORT: u16 = 8080;
/// The admin listener, which no other process of its namespace has.
const ADMIN: &str = "127.0.0.1:9090";
/// Prints the metrics.
const SCRAPE: &str = "import sys, urllib.request\n\
    print(urllib.request.urlopen(f'http://{sys.argv[1]}/metrics').read().decode())\n";

/// Prepares the namespaces: 10.9.0.1 and fd09::1 are addresses of an interface whose other end drops all packets.
const INTERFACES: &str = "ip link set lo up && ip link add hole type veth peer name far && ip link set hole arp off && \
    ip link set hole up && ip link set far up && ip addr add 10.9.0.1/16 dev hole && ip addr add fd09::1/64 dev hole nodad";

/// Answers each request at one address of its own with that address, and closes the connection.
const ORIGIN: &str = "import socket, sys, threading\n\
    def serve(c):\n    c.recv(65536)\n    text = c.getsockname()[0]\n    \
        c.sendall(f'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: {len(text)}\\r\\n\\r\\n{text}'.encode())\n    c.close()\n\
    s = socket.socket(socket.AF_INET6)\n\
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)\n\
    s.bind(('::', int(sys.argv[1])))\ns.listen(64)\nprint('listens', flush=True)\n\
    while True:\n    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()\n";

/// litequic and an origin in namespaces of their own.
struct Inside {
    litequic: Process,
    _origin: Process,
    nsenter: PathBuf,
    python: PathBuf,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Inside {
    /// litequic before [`NAME`], which has `addresses`, with `keys` of the origin. `None`, reported, if the machine
    /// allows none.
    fn start(addresses: &[String], keys: &str) -> Option<Self> {
        let [unshare, nsenter, python, ip] = ["unshare", "nsenter", "python3", "ip"].map(needs::program);
        let (unshare, nsenter, python, _) = (unshare?, nsenter?, python?, ip?);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let made = make_self_signed(["localhost"]).unwrap();
        let hosts: String = addresses.iter().map(|address| format!("{address} {NAME}\n")).collect();
        fs::write(path("hosts"), format!("127.0.0.1 localhost\n{hosts}")).unwrap();
        fs::write(path("tls.crt"), &made.cert_pem).unwrap();
        fs::write(path("tls.key"), &made.key_pem).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
        let inside = |program: PathBuf| {
            let mut inside = Command::new(program);
            inside.args(["--user", "--map-root-user", "--mount", "--net", "sh", "-c"]);
            inside.arg(format!("{INTERFACES} && mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"")).arg("sh");
            inside.arg(path("hosts")).env_remove("RUST_LOG").env_remove("SSLKEYLOGFILE");
            inside
        };
        if !inside(unshare.clone()).arg("true").output().unwrap().status.success() {
            needs::skip("there may be no namespaces here");
            return None;
        }
        fs::write(path("litequic.toml"), Self::config(address, keys)).unwrap();
        let (program, mut command_inside) = (command(["run", "--config", &path("litequic.toml")]), inside(unshare));
        command_inside.arg(program.get_program()).args(program.get_args());
        let litequic = Process::spawn(command_inside);
        assert_eq!(litequic.address(), address);
        let mut server = Command::new(&python);
        server.args(["-c", ORIGIN, &PORT.to_string()]);
        let origin = Process::spawn(join(&nsenter, litequic.id(), &server));
        origin.await_stdout("listens");
        Some(Self { litequic, _origin: origin, nsenter, python, folder, address })
    }

    fn config(address: SocketAddr, keys: &str) -> String {
        let io = io_key();
        format!(
            "{io}log.format = \"json\"\nlisten.udp = \"{address}\"\nlisten.tcp = []\nlisten.workers = 1\nadmin.listen = \"{ADMIN}\"\n\
             {keys}[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n"
        )
    }

    /// A request in the namespaces.
    fn ask(&self) -> Process {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let url = format!("https://localhost:{}/", self.address.port());
        let get = command(["get", "--timeout", "25s", "--ca", &path("tls.crt"), &url]);
        Process::spawn(join(&self.nsenter, self.litequic.id(), &get))
    }

    /// The address at which a request was served.
    fn get(&self) -> String {
        served(self.ask())
    }

    /// The value of the metric `name` of the origin's server.
    fn metric(&self, name: &str) -> u64 {
        let mut scrape = Command::new(&self.python);
        scrape.args(["-c", SCRAPE, ADMIN]);
        let text = Process::spawn(join(&self.nsenter, self.litequic.id(), &scrape)).end().success();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(NAME));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).split(' ').next_back().unwrap().parse().unwrap()
    }

    /// Attempts to connect that failed so far.
    fn failures(&self) -> u64 {
        self.metric("litequic_origin_address_failures_total")
    }
}

/// The body of the response that `get` shows.
fn served(get: Process) -> String {
    let shown = get.end().success();
    shown.rsplit_once("\n\n").unwrap_or_else(|| panic!("no body: {shown}")).1.to_owned()
}

/// `command` in the namespaces of the process `id`.
fn join(nsenter: &PathBuf, id: u32, command: &Command) -> Command {
    let mut inside = Command::new(nsenter);
    inside.args(["--target", &id.to_string(), "--user", "--mount", "--net", "--preserve-credentials"]);
    inside.arg(command.get_program()).args(command.get_args());
    inside
}

fn origin(connect: &str) -> String {
    format!("timeouts.connect = \"{connect}\"\norigin.url = \"http://{NAME}:{PORT}\"\n")
}

#[tokio::test]
async fn an_unreachable_address_family_delays_one_connection() {
    let addresses = ["fd09::1", "10.9.0.2", "10.9.0.3"].map(str::to_owned);
    let Some(inside) = Inside::start(&addresses, &origin("20s")) else { return };
    for _ in 0..12 {
        assert_eq!(inside.get(), "fd09::1");
    }
    assert_eq!(inside.failures(), 2, "{}", inside.litequic.stderr());
}

#[tokio::test]
async fn the_working_one_of_64_addresses_is_found_and_remembered() {
    let addresses: Vec<_> = (1..=64).map(|n| format!("10.9.0.{n}")).collect();
    let Some(inside) = Inside::start(&addresses, &origin("5s")) else { return };
    for _ in 0..4 {
        assert_eq!(inside.get(), "::ffff:10.9.0.1");
    }
    assert_eq!(inside.failures(), 63);
}

/// Handshakes that take longer than the delay between attempts: attempts overlap, up to a bound, and the kernel's next
/// SYN reaches an address that was down when the first one was lost.
#[tokio::test]
async fn a_slow_handshake_at_16_addresses_succeeds_within_timeouts_connect() {
    const SYN_SENT: &str = " 02 ";
    let addresses: Vec<_> = (2..18).map(|n| format!("10.9.0.{n}")).collect();
    let Some(inside) = Inside::start(&addresses, &origin("8s")) else { return };
    let waiting = inside.ask();
    let sockets = format!("/proc/{}/net/tcp", inside.litequic.id());
    let deadline = Instant::now() + DEADLINE;
    loop {
        let attempts = fs::read_to_string(&sockets).unwrap().matches(SYN_SENT).count();
        assert!(attempts <= addresses.len(), "{attempts} at once");
        if attempts == addresses.len() {
            break;
        }
        assert!(Instant::now() < deadline, "{attempts} at once");
        thread::sleep(LOOK_AGAIN);
    }
    // No attempt begins any more: one of these succeeds.
    let up =
        addresses.iter().map(|address| format!("ip addr add {address}/16 dev hole")).collect::<Vec<_>>().join(" && ");
    let mut all = Command::new("sh");
    all.args(["-c", &up]);
    Process::spawn(join(&inside.nsenter, inside.litequic.id(), &all)).end().success();
    let at = served(waiting);
    assert!(addresses.iter().any(|address| at == format!("::ffff:{address}")), "{at}");
}

#[tokio::test]
async fn a_reload_leaves_a_connection_alone_that_is_being_opened() {
    let addresses = ["10.9.0.2", "10.9.0.3"].map(str::to_owned);
    let Some(inside) = Inside::start(&addresses, &origin("20s")) else { return };
    let waiting = inside.ask();
    let deadline = Instant::now() + DEADLINE;
    while inside.metric("litequic_origin_server_connections") == 0 {
        assert!(Instant::now() < deadline, "no request comes to the proxy");
        thread::sleep(LOOK_AGAIN);
    }
    let elsewhere = format!("origin.url = \"http://127.0.0.1:{PORT}\"\n");
    fs::write(inside.folder.path().join("litequic.toml"), Inside::config(inside.address, &elsewhere)).unwrap();
    inside.litequic.signal("HUP");
    inside.litequic.await_stderr("reloaded");
    assert_eq!(inside.get(), "::ffff:127.0.0.1");
    // One of the black holes is an address of this machine from now on: the kernel's next SYN reaches it.
    let mut live = Command::new("ip");
    live.args(["addr", "add", "10.9.0.2/16", "dev", "hole"]);
    Process::spawn(join(&inside.nsenter, inside.litequic.id(), &live)).end().success();
    assert_eq!(served(waiting), "::ffff:10.9.0.2");
}
