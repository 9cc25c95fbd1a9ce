//! A PostgreSQL and a Redis of a test's own, which it may stop, restart and slow down.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::wait_until_within;

/// A port that was free a moment ago.
/// A port that no other test has got: each one keeps the lock of its own until its process ends. Without that, two that ask
/// at once may get the same, and one speaks with the other's server.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let path = std::env::temp_dir().join(format!("heddle-test-port-{port}"));
        let lock = std::fs::File::create(&path).unwrap();
        if lock.try_lock().is_ok() {
            // Closed, and so unlocked, by the end of the process; the file is empty and stays.
            let _ = Box::leak(Box::new(lock));
            return port;
        }
    }
}

/// A private server, with fsync on as in production. Goes away with its folder.
pub struct Postgres {
    folder: tempfile::TempDir,
    bin: PathBuf,
    port: u16,
    child: Option<Child>,
    /// Certificate and key; then nobody gets in over TCP without TLS.
    tls: Option<(PathBuf, PathBuf)>,
}

impl Postgres {
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Only TLS gets in, with this certificate and key.
    pub fn start_tls(certificate: &Path, key: &Path) -> Self {
        Self::start_with(Some((certificate, key)))
    }

    fn start_with(tls: Option<(&Path, &Path)>) -> Self {
        let folder = tempfile::Builder::new().prefix("hdlpg").tempdir().unwrap();
        let mut server = Self {
            bin: binaries(),
            port: free_port(),
            child: None,
            tls: None,
            folder,
        };
        server.own_folder();
        let made = server
            .as_its_user("initdb")
            .args([
                "-U",
                "heddle",
                "--auth=trust",
                "--no-locale",
                "--encoding=UTF8",
                "--no-sync",
            ])
            .arg("-D")
            .arg(server.data())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        if let Some((certificate, key)) = tls {
            server.take_tls(certificate, key);
        }
        server.run();
        server
    }

    /// The key must be its user's own.
    fn take_tls(&mut self, certificate: &Path, key: &Path) {
        let copy = |from: &Path, name: &str| -> PathBuf {
            let to = self.folder.path().join(name);
            std::fs::copy(from, &to).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&to, mode).unwrap();
            to
        };
        let (certificate, key) = (copy(certificate, "tls.pem"), copy(key, "tls.key"));
        if rustix::process::geteuid().is_root() {
            let mut own = Command::new("chown");
            let owned = own.arg("postgres:").args([&certificate, &key]).status();
            assert!(owned.unwrap().success());
        }
        let who = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
        std::fs::write(self.data().join("pg_hba.conf"), who).unwrap();
        self.tls = Some((certificate, key));
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("postgres://heddle@127.0.0.1:{}/postgres", self.port)
    }

    /// As a crash of the whole server: nobody is waited for, recovery at the next start.
    pub fn restart_immediate(&mut self) {
        let stopped = self
            .as_its_user("pg_ctl")
            .args(["stop", "-m", "immediate", "-w", "-t", "30", "-D"])
            .arg(self.data())
            .output()
            .unwrap();
        assert!(stopped.status.success(), "{stopped:?}");
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
        self.run();
    }

    /// Up again as a replica: it can be read, and never written.
    pub fn restart_as_standby(&mut self) {
        let signal = self.data().join("standby.signal");
        let mut touch = self.as_its_user("psql");
        touch.args([
            "-X",
            "-q",
            "-c",
            &format!("COPY (SELECT) TO '{}'", signal.display()),
            &self.url(),
        ]);
        let touched = touch.output().unwrap();
        assert!(touched.status.success(), "{touched:?}");
        self.restart_immediate();
    }

    /// Its own, and gone with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A statement that somebody may end from elsewhere.
    pub fn try_sql(&self, statement: &str) -> std::process::Output {
        Command::new(self.bin.join("psql"))
            .args(["-X", "-A", "-t", "-c", statement, &self.url()])
            .output()
            .unwrap()
    }

    /// Runs one statement and returns the first column of its rows.
    pub fn sql(&self, statement: &str) -> Vec<String> {
        let ran = self.try_sql(statement);
        assert!(ran.status.success(), "{statement}: {ran:?}");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// A copy of everything, as an operator makes it.
    pub fn dump(&self) -> String {
        self.dump_of("mesh")
    }

    /// The same of one schema.
    pub fn dump_of(&self, schema: &str) -> String {
        let ran = Command::new(self.bin.join("pg_dump"))
            .args(["-n", schema, &self.url()])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Puts a copy in the place of what is there.
    pub fn restore(&self, dump: &str) {
        self.restore_of("mesh", dump);
    }

    pub fn restore_of(&self, schema: &str, dump: &str) {
        self.sql(&format!("DROP SCHEMA {schema} CASCADE"));
        let file = self.folder.path().join("dump.sql");
        std::fs::write(&file, dump).unwrap();
        let ran = Command::new(self.bin.join("psql"))
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"])
            .arg(&file)
            .arg(self.url())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }

    fn run(&mut self) {
        let mut command = self.as_its_user("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string()])
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=200",
            ])
            .arg("-c")
            .arg(format!(
                "unix_socket_directories={}",
                self.folder.path().display()
            ))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some((certificate, key)) = &self.tls {
            let told = |name: &str, file: &Path| format!("{name}={}", file.display());
            command.args(["-c", "ssl=on", "-c", &told("ssl_cert_file", certificate)]);
            command.args(["-c", &told("ssl_key_file", key)]);
        }
        self.child = Some(command.spawn().unwrap());
        wait_until_within(Duration::from_secs(60), "the database", || {
            let mut ready = Command::new(self.bin.join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            ready.status().unwrap().success()
        });
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// It refuses to run as root.
    fn as_its_user(&self, program: &str) -> Command {
        let program = self.bin.join(program);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid=postgres",
                "--regid=postgres",
                "--init-groups",
                "--",
            ]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    fn own_folder(&self) {
        if rustix::process::geteuid().is_root() {
            let owned = Command::new("chown")
                .arg("postgres:")
                .arg(self.folder.path())
                .status()
                .unwrap();
            assert!(owned.success());
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = self.as_its_user("pg_ctl");
        stop.args(["stop", "-m", "immediate", "-w", "-t", "30", "-D"]);
        let _ = stop.arg(self.data()).output();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

/// The folder of the newest server.
fn binaries() -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is not installed: run the tests through ./scripts/test")
        .map(|entry| entry.unwrap().path().join("bin"))
        .filter(|folder| folder.join("postgres").exists())
        .collect();
    found.sort();
    found
        .pop()
        .expect("PostgreSQL is not installed: run the tests through ./scripts/test")
}

/// A private Redis that keeps nothing on disk.
pub struct Redis {
    port: u16,
    child: Option<Child>,
    /// Certificate, key, and the authority that signed it; then it speaks nothing but TLS.
    tls: Option<[String; 3]>,
}

impl Redis {
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Only TLS gets in: certificate, key, authority.
    pub fn start_tls(files: [String; 3]) -> Self {
        Self::start_with(Some(files))
    }

    fn start_with(tls: Option<[String; 3]>) -> Self {
        let mut server = Self {
            port: free_port(),
            child: None,
            tls,
        };
        server.run();
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        match self.tls {
            None => format!("redis://127.0.0.1:{}/", self.port),
            Some(_) => format!("rediss://localhost:{}/", self.port),
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn run(&mut self) {
        let port = self.port.to_string();
        let mut command = Command::new("redis-server");
        match &self.tls {
            None => command.args(["--port", &port]),
            Some([certificate, key, authority]) => command
                .args(["--port", "0", "--tls-port", &port])
                .args(["--tls-cert-file", certificate, "--tls-key-file", key])
                .args(["--tls-ca-cert-file", authority, "--tls-auth-clients", "no"]),
        };
        let child = command
            .args(["--bind", "127.0.0.1"])
            .args([
                "--save",
                "",
                "--appendonly",
                "no",
                "--enable-debug-command",
                "local",
            ])
            .current_dir("/tmp")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        wait_until_within(Duration::from_secs(20), "redis", || {
            self.ask(&["ping"]) == "PONG"
        });
    }

    pub fn ask(&self, words: &[&str]) -> String {
        let mut ask = Command::new("redis-cli");
        ask.args(["-p", &self.port.to_string()]);
        if let Some([.., authority]) = &self.tls {
            ask.args(["-h", "localhost", "--tls", "--cacert", authority]);
        }
        let ran = ask.args(words).output().unwrap();
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// Whether it takes longer to answer than anything but sleep explains.
    pub fn is_silent(&self) -> bool {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let patience = Some(Duration::from_millis(500));
        stream.set_read_timeout(patience).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        stream.read(&mut [0; 16]).is_err()
    }

    /// Answers nobody for so long; returns at once.
    pub fn sleep(&self, seconds: u32) -> Child {
        let mut ask = Command::new("redis-cli");
        ask.args(["-p", &self.port.to_string(), "debug", "sleep"]);
        ask.arg(seconds.to_string()).stdout(Stdio::null());
        ask.spawn().unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
