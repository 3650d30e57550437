/* SPDX-License-Identifier: MIT */
/* Threads that call what keeps state in the C and C++ libraries, all at the same time: locales, conversions, name
   services, regular expressions, streams, exceptions, other threads, children. Prints what each thread saw. */
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iomanip>
#include <iostream>
#include <locale>
#include <mutex>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <dirent.h>
#include <execinfo.h>
#include <glob.h>
#include <grp.h>
#include <iconv.h>
#include <netdb.h>
#include <pwd.h>
#include <regex.h>
#include <string.h>
#include <time.h>
#include <wordexp.h>

namespace
{

enum { THREADS = 6, ROUNDS = 8 };

std::once_flag once;
int initialised;
thread_local std::string grown;

void locales(std::ostream &out, int round)
{
	out.imbue(round % 2 ? std::locale("C.UTF-8") : std::locale::classic());
	out << std::setprecision(12) << 3.14159 << ' ' << 1234567 << ' ';
	wchar_t wide[16];
	char text[64];
	out << mbstowcs(wide, "abc", 16) << ' ' << strtod("2.75", nullptr) << ' ' << strerror_r(2, text, sizeof text) << '\n';
}

void conversions(std::ostream &out, int round)
{
	char in[] = "\xa3\xc1", result[16] = "", *from = in, *to = result;
	size_t left = 2, room = sizeof result;
	iconv_t conversion = iconv_open("UTF-16LE", round % 3 ? "LATIN2" : "KOI8-R");
	iconv(conversion, &from, &left, &to, &room);
	iconv_close(conversion);
	out << static_cast<int>(static_cast<unsigned char>(result[0])) << ' ' << to - result << '\n';
}

void names(std::ostream &out)
{
	char text[4096];
	passwd user, *found_user = nullptr;
	group users, *found_group = nullptr;
	addrinfo hints{}, *address = nullptr;
	hints.ai_family = AF_INET;
	getpwnam_r("root", &user, text, sizeof text, &found_user);
	out << (found_user ? found_user->pw_dir : "none") << ' ';
	getgrnam_r("root", &users, text, sizeof text, &found_group);
	out << (found_group ? static_cast<int>(found_group->gr_gid) : -1) << ' ';
	if (getaddrinfo("127.0.0.1", "80", &hints, &address) == 0) {
		out << inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in *>(address->ai_addr)->sin_addr, text, sizeof text);
		freeaddrinfo(address);
	}
	out << '\n';
}

void patterns(std::ostream &out)
{
	out << std::regex_replace(std::string("a1b22c333"), std::regex("[0-9]+"), "<$&>") << ' ';
	regex_t compiled;
	regcomp(&compiled, "^(ab)+c$", REG_EXTENDED);
	out << regexec(&compiled, "ababc", 0, nullptr, 0) << ' ';
	regfree(&compiled);
	glob_t paths;
	out << glob("/etc/pass*d", 0, nullptr, &paths) << paths.gl_pathc << ' ';
	globfree(&paths);
	wordexp_t words;
	out << wordexp("a b 'c d'", &words, 0) << words.we_wordc << '\n';
	wordfree(&words);
}

void times(std::ostream &out, int thread)
{
	time_t seconds = 86400L * 365 * (thread + 1);
	struct tm broken;
	char text[99];
	localtime_r(&seconds, &broken);
	strftime(text, sizeof text, "%A %d %B %Y", &broken);
	out << text << ' ' << mktime(&broken) - seconds << '\n';
}

void files(std::ostream &out, const std::string &name, int thread)
{
	std::ofstream(name) << "line " << thread << '\n';
	std::string line;
	std::ifstream in(name);
	std::getline(in, line);
	std::filesystem::remove(name);
	int entries = 0;
	DIR *directory = opendir("/etc");
	while (readdir(directory))
		entries++;
	closedir(directory);
	char *made = nullptr, *copy = strdup(line.c_str());
	out << copy << ' ' << (entries > 5) << ' ' << asprintf(&made, "%s-%5.2f", copy, 1.5) << made << '\n';
	free(made);
	free(copy);
}

void flow(std::ostream &out, int thread)
{
	std::call_once(once, [] { initialised = 42; });
	grown += 'x';
	void *frames[8];
	out << initialised << ' ' << grown.size() << ' ' << (backtrace(frames, 8) > 2) << ' ';
	try {
		throw std::runtime_error("thrown " + std::to_string(thread));
	} catch (const std::exception &caught) {
		out << caught.what() << ' ';
	}
	auto sum = std::async(std::launch::async, [thread] {
		std::vector<int> numbers(1000);
		std::iota(numbers.begin(), numbers.end(), thread);
		return std::accumulate(numbers.begin(), numbers.end(), 0);
	});
	out << sum.get() << ' ';
	char line[32];
	FILE *child = popen("echo child", "r");
	out << fgets(line, sizeof line, child);
	pclose(child);
}

std::string all(const std::string &folder, int thread)
{
	std::ostringstream out;
	for (int round = 0; round < ROUNDS; round++) {
		locales(out, round);
		conversions(out, round);
		names(out);
		patterns(out);
		times(out, thread);
		files(out, folder + "/lines" + std::to_string(thread), thread);
		flow(out, thread);
	}
	return out.str();
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	setlocale(LC_ALL, "C.UTF-8");
	std::vector<std::string> said(THREADS);
	std::vector<std::thread> threads;
	for (int i = 0; i < THREADS; i++)
		threads.emplace_back([&said, i, argv] { said[i] = all(argv[1], i); });
	for (auto &thread : threads)
		thread.join();
	for (const auto &text : said)
		std::cout << text;
	return 0;
}
