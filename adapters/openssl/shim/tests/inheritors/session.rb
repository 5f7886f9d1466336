# Sessions of TLS by Ruby: a client, a server in a thread, and a child by fork.
require "net/http"
require "openssl"
require "socket"

FOLDER, PORT = ARGV

def ask(port)
  http = Net::HTTP.new("localhost", port)
  http.use_ssl = true
  http.ca_file = "#{FOLDER}/ca.pem"
  agreed = nil
  answer = http.start do
    socket = http.instance_variable_get(:@socket).io
    agreed = [socket.ssl_version, socket.cipher, socket.peer_cert.subject.to_s]
    http.get("/")
  end
  [answer.code, answer.body, agreed]
end

puts "client: #{ask(PORT)}"
context = OpenSSL::SSL::SSLContext.new
context.add_certificate(
  OpenSSL::X509::Certificate.new(File.read("#{FOLDER}/localhost.pem")),
  OpenSSL::PKey.read(File.read("#{FOLDER}/localhost.key"))
)
plain = TCPServer.new("127.0.0.1", 0)
server = OpenSSL::SSL::SSLServer.new(plain, context)
thread = Thread.new do
  8.times do
    client = server.accept
    nil until client.gets.strip.empty?
    client.write("HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello from Ruby")
    client.close
  end
end
threads = Array.new(8) { Thread.new { ask(plain.addr[1]) } }
puts "server: #{threads.map(&:value)}"
thread.join
$stdout.flush
child = fork { puts "forked: #{ask(PORT)}" }
puts "status: #{Process.wait2(child)[1].exitstatus}"
